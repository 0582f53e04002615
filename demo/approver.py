#!/usr/bin/env python3
"""The approver: somebody else than the job, with a role of its own.

It reads what awaits an approval, thinks for a moment, and approves the terms that it was
shown, while the job goes on with other invoices.  Before the night begins it also gives an
approval that nobody will ever need, and one that it takes back: neither may be spent.
"""
import sys
import time

import psycopg2

from common import LARGE, connect, die_with_parent, tell

EVERY = 0.3         # seconds between two looks
THINKS = 1.0        # seconds from the first sight of an effect to its approval
NAME = "treasurer"

AWAITING = "SELECT effect_key, target, terms_shown FROM effect.awaiting_approval ORDER BY since"

APPROVE = "SELECT effect.approve(%s, %s, terms => %s, valid_for => '1 hour')"

# An approval may come before anybody has claimed the effect: its key follows from its facts.
KEY = """
    SELECT effect.effect_key('charge-large', %s,
               effect.input_digest(effect.facts('customer', %s, 'amount', %s::numeric,
                                                'currency', %s)))"""

LARGEST = """
    SELECT invoice_no, customer, amount, currency
      FROM invoice WHERE amount > %s ORDER BY amount DESC LIMIT 1"""

# It ended meanwhile, it is shown with other terms now, its approval is spent already.
LATER = ("LE004", "LE005", "LE006")


def give_in_advance(cursor):
    """One approval for an invoice that was never written, one that is taken back."""
    def give(approver, *facts):
        cursor.execute(KEY, facts)
        key = cursor.fetchone()[0]
        cursor.execute(APPROVE, (key, approver, None))
        return key

    give(NAME, "2026-9999", "Nobody & Sons", 500, "EUR")
    cursor.execute(LARGEST, (LARGE,))
    key = give("deputy", *cursor.fetchone())
    cursor.execute("SELECT effect.revoke_approval(%s, %s)", (key, "deputy"))


def approve(cursor, key, terms):
    try:
        cursor.execute(APPROVE, (key, NAME, terms))
        return True
    except psycopg2.Error as error:
        if error.pgcode not in LATER:
            raise
        return False


def main():
    die_with_parent()
    cursor = connect("approver", "approver").cursor()
    give_in_advance(cursor)
    tell("ready")
    seen = {}           # effect key -> when it was first seen
    while True:
        cursor.execute(AWAITING)
        for key, invoice, terms in cursor.fetchall():
            since = seen.setdefault(key, time.monotonic())
            if time.monotonic() - since >= THINKS and approve(cursor, key, terms):
                tell("approved", invoice=invoice, terms=terms)
        time.sleep(EVERY)


if __name__ == "__main__":
    sys.exit(main())
