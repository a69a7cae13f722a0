"""A market with pages: a task in every state, and everybody who might look at them."""

from __future__ import annotations

from functools import cached_property

from fedbourse.dashboard.app import add_dashboard
from fedbourse.dashboard.session import cookie_name
from fedbourse.market.commands import buyer as buyer_commands
from fedbourse.testing.trading import BUYER, card
from web.fixtures import World


class Town(World):
    """A world with the dashboard on its service; its clock pauses."""

    def _serve(self, store):
        super()._serve(store)
        add_dashboard(self.app)

    @property
    def buyer(self):
        return self.people["buyer"]

    @property
    def owner(self):
        return self.people["owner's token"]

    @property
    def cookie(self):
        """The name of the session's cookie."""
        return cookie_name(self.market, "http")

    @cached_property
    def tasks(self):
        """One task in each state, newest last."""
        self.whole()
        return self

    def publish(self, goal, **changes):
        """Open one more task, a second after the one before."""
        self.trading.time_ms += 1000
        task = self.trading.do(buyer_commands.create, BUYER, card(goal=goal, **changes))
        return self.trading.do(buyer_commands.open_task, BUYER, task.id, confirm_upfront=True)

    def sign_in(self, client, person, **fields):
        """Post a token as the page's form does, and return the answer."""
        return self.post(client, "/sign-in", token=person.token, **fields)

    def post(self, client, path, *, origin="http://testserver", **fields):
        """Post a form as a page of this market does."""
        headers = {} if origin is None else {"origin": origin}
        return client.post(path, data=fields, headers=headers)
