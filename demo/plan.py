"""What will happen to the runs of the night: kills, pauses, a deploy.

A plan is a list of orders, drawn from the seed.  Each run that is granted the lease is
given the next one; an order that its run did not get to goes back to the front.
"""
from collections import Counter, namedtuple

# Every line between claim and release, in the order in which a run meets them.
POINTS = (
    "after_claim_lease",    # the lease is ours, nothing done yet
    "before_begin",         # about to ask for one invoice
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

# The lines around the call are where a duplicate is made: killed there more than once.
TWICE = ("after_begin", "request_sent", "after_response")

# Met only now and then, so the first pass will do.
RARE = ("after_claim_lease", "answer_lost", "after_mark_unknown", "before_renew", "after_renew",
        "before_release")

# Where a run sleeps through the end of its lease and then goes on.
PAUSES = ("after_begin", "after_response", "row_written", "before_renew")

PASSES = (3, 10)    # an order is for a pass in this range: the kills walk through the list

Order = namedtuple("Order", "how point passes")


def draw(rng):
    """The orders of one night, the same for the same random numbers."""
    def order(how, point):
        return Order(how, point, 1 if point in RARE else rng.randint(*PASSES))

    last = order("kill", "before_release")
    kills = [order("kill", point) for point in POINTS + TWICE if point != last.point]
    orders = kills + [order("pause", point) for point in PAUSES]
    rng.shuffle(orders)
    # The deploy, in the middle: one run drains when asked, one hangs in its call.
    middle = len(orders) // 2
    orders[middle:middle] = [order("drain", "request_sent"), order("deploy", "request_sent")]
    return orders + [last]


class Plan:
    def __init__(self, orders):
        self.todo = list(orders)
        self.planned = Counter((o.how, o.point) for o in orders)
        self.landed = Counter()

    def take(self, how=None):
        """The next order (of that kind); None when there is none left."""
        for order in self.todo:
            if how in (None, order.how):
                self.todo.remove(order)
                return order
        return None

    def give_back(self, order):
        self.todo.insert(0, order)

    def land(self, order):
        self.landed[order.how, order.point] += 1

    def count(self, how, counter=None):
        """How many of a kind: landed, or of the counter given."""
        counter = self.landed if counter is None else counter
        return sum(n for (kind, _), n in counter.items() if kind == how)

    def missed(self):
        return self.planned - self.landed
