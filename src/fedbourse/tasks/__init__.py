"""What a task is: its card, the layout of its records, what it invites."""
