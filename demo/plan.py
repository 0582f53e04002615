"""What will happen to the runs of the night: kills, pauses, a deploy.

A plan is a list of orders, drawn from the seed.  Each run that is granted the lease is
given the next one; an order that its run did not get to goes back to the front.
"""
from collections import Counter, namedtuple

# Every line between claim and release, in the order in which a run meets them.
POINTS = (
    "after_claim_lease",    # the lease is ours, nothing done yet
    "before_begin",         # about to ask for one invoice
    "unapproved",           # claimed, its approval is asked for
    "after_begin",          # `go` said, nothing sent
    "request_half_sent",    # the far side has the head of the request
    "request_sent",         # the far side has all of it, its answer is not read
    "after_response",       # answer read, not recorded
    "answer_lost",          # connection dropped, not recorded
    "after_mark_unknown",   # that is recorded
    "after_complete",       # answer recorded, receipt not written
    "fence_taken",          # in the receipt's transaction, before the write
    "row_written",          # in the receipt's transaction, before COMMIT
    "after_receipt",        # committed
    "before_renew",
    "after_renew",
    "before_release",       # all invoices seen, lease still ours
)

# Where there is no ledger, nobody asks for an approval.
ONLY_WITH_EFFECT = ("unapproved",)

# The lines around the call are where a duplicate is made: killed there more than once.
TWICE = ("after_begin", "request_sent", "after_response")

# Met only now and then, so the first pass will do.
RARE = ("after_claim_lease", "unapproved", "answer_lost", "after_mark_unknown", "before_renew",
        "after_renew", "before_release")

# Where a run sleeps through the end of its lease and then goes on.
PAUSES = ("after_begin", "after_response", "row_written", "before_renew")

PASSES = (3, 10)    # an order is for a pass in this range: the kills walk through the list

LAST = "before_release"

Order = namedtuple("Order", "how point passes")


def points(effect):
    return [point for point in POINTS if effect or point not in ONLY_WITH_EFFECT]


def order(rng, how, point, passes=PASSES):
    return Order(how, point, 1 if point in RARE else rng.randint(*passes))


class Plan:
    """One night: a kill at every point, some pauses, a deploy."""
    lease = 1.2         # seconds: short, so that a night full of kills fits into one minute
    at_most = 150       # seconds after which the night is given up
    drop_every = None   # the far side's own way of losing answers

    def __init__(self, rng, effect):
        kills = [order(rng, "kill", point) for point in points(effect) + list(TWICE)
                 if point != LAST]
        self.todo = kills + [order(rng, "pause", point) for point in PAUSES]
        rng.shuffle(self.todo)
        # The deploy, in the middle: one run drains when asked, one hangs in its call.
        middle = len(self.todo) // 2
        self.todo[middle:middle] = [order(rng, "drain", "request_sent"),
                                    order(rng, "deploy", "request_sent")]
        self.todo.append(order(rng, "kill", LAST))
        self.planned = Counter((o.how, o.point) for o in self.todo)
        self.landed = Counter()

    def open_night(self):
        """Called as a night begins."""

    def take(self, open_invoices, how=None):
        """The next order (of that kind); None when there is none left."""
        for todo in self.todo:
            if how in (None, todo.how):
                self.todo.remove(todo)
                return todo
        return None

    def give_back(self, left):
        self.todo.insert(0, left)

    def land(self, done):
        self.landed[done.how, done.point] += 1

    def count(self, how, counter=None):
        """How many of a kind: landed, or of the counter given."""
        counter = self.landed if counter is None else counter
        return sum(n for (kind, _), n in counter.items() if kind == how)

    def missed(self):
        return self.planned - self.landed

    def missed_kills(self):
        return self.count("kill", self.missed())


class Series(Plan):
    """So many kills, spread evenly over the points, in as many nights as that takes.

    Each night has the pauses of the one night (not without effect, where a paused run is
    not refused and may end the night alone), and no deploy: what is killed is counted.
    """
    lease = 0.7         # seconds: each kill costs one
    drop_every = (2, 6) # charges a lost answer: kills there have to be met often enough
    passes = (1, 2)
    few = 10            # invoices left to charge, at which the end of the night is in sight
    at_the_end = 6      # kills there, a night

    def __init__(self, rng, effect, kills):
        self.rng = rng
        self.effect = effect
        self.at_most = 90 + 2 * kills
        where = points(effect)
        drawn = where * (kills // len(where)) + rng.sample(where, kills % len(where))
        self.todo = [order(rng, "kill", point, self.passes) for point in drawn]
        rng.shuffle(self.todo)
        self.planned = Counter((o.how, o.point) for o in self.todo)
        self.landed = Counter()
        self.ends = 0

    def open_night(self):
        self.ends = self.at_the_end
        if not self.effect or not self.missed_kills():
            return
        for place, point in enumerate(PAUSES, 1):
            self.todo.insert(5 * place, order(self.rng, "pause", point, self.passes))
            self.planned["pause", point] += 1

    def take(self, open_invoices, how=None):
        """A run that is to die at its end gets there through all that is left to charge, so
        that comes last in a night."""
        ends = [todo for todo in self.todo if todo.point == LAST]
        others = [todo for todo in self.todo if todo.point != LAST and how in (None, todo.how)]
        if ends and (not others or (self.ends > 0 and open_invoices <= self.few)):
            self.ends -= 1
            others = ends
        if not others:
            return None
        self.todo.remove(others[0])
        return others[0]

    def give_back(self, left):
        self.todo.insert(self.rng.randint(0, len(self.todo)), left)
