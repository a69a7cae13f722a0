"""The market as a service: routes that translate, and who may call them."""
