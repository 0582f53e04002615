#!/usr/bin/env python3
"""One run of the nightly job: charge every invoice, write a receipt for each.

The run may be killed at any line.  `at(...)` marks those lines; there the supervisor
kills it, stops it for longer than its lease, or lets it pass (see Points).
"""
import argparse
import http.client
import json
import signal
import sys
import time
from collections import namedtuple

import textbook
import with_effect
from common import SEND_WITHIN, tell

Invoice = namedtuple("Invoice", "no customer amount currency")

FINISHED, HELD, LEFT, FENCED = 0, 10, 11, 12    # exit codes

WAITS = 2.0         # seconds, at its end, for which a run waits for approvals
ASKS_EVERY = 0.2


class Points:
    """The named lines between claim and release.

    The supervisor orders a point, and which pass of it.  There the run says where it is
    and waits: for SIGKILL, for SIGSTOP and SIGCONT, or for its next order.
    """

    def __init__(self):
        self.point = None
        self.left = 0

    def take_order(self):
        self.point, passes = sys.stdin.readline().split()
        self.left = int(passes)

    def at(self, point, invoice=None):
        if point != self.point:
            return
        self.left -= 1
        if self.left == 0:
            tell("at", point=point, invoice=invoice and invoice.no)
            self.take_order()


class Run:
    def __init__(self, book, far_side):
        self.book = book
        self.far_side = far_side
        self.points = Points()
        self.at = self.points.at
        self.asked_to_stop = False
        self.unapproved = {}    # invoice -> the reference that begin() claimed for it
        self.renewed = time.monotonic()
        signal.signal(signal.SIGTERM, self.stop)

    def stop(self, *_):
        """SIGTERM: finish the invoice in hand, release, leave."""
        self.asked_to_stop = True

    def work(self, firing):
        verdict, seconds = self.book.claim(firing)
        if verdict != "granted":
            tell(verdict, seconds=seconds)
            return FINISHED if verdict == "already_ran" else HELD
        tell("granted", token=self.book.token)
        self.points.take_order()
        self.at("after_claim_lease")
        left = self.charge_all(firing)
        outcome = "failed" if left else "finished"
        self.at("before_release")
        self.book.release(outcome, left)
        tell("released", outcome=outcome, left=left)
        return LEFT if left else FINISHED

    def charge_all(self, firing):
        """How many invoices are left for another run."""
        invoices, written = self.read_shop(firing)
        left = len(invoices)
        for invoice in invoices:
            if self.asked_to_stop:
                tell("stopping")
                break
            if invoice.no not in written:
                self.at("before_begin", invoice)
            if self.charge(invoice):
                left -= 1
                if invoice.no not in written:
                    self.write_receipt(invoice)
            self.keep_lease(invoice)
        return left - self.charge_approved()

    def charge_approved(self):
        """Charge what is approved meanwhile, and wait a moment for the rest; how many."""
        charged = 0
        until = time.monotonic() + WAITS
        while self.unapproved and not self.asked_to_stop:
            for invoice, reference in list(self.unapproved.items()):
                if self.charge_if_approved(invoice, reference):
                    charged += 1
                    self.write_receipt(invoice)
                self.keep_lease(invoice)
            if not self.unapproved or time.monotonic() > until:
                break
            time.sleep(ASKS_EVERY)
        return charged

    def write_receipt(self, invoice):
        self.book.write_receipt(invoice, self.at)
        self.at("after_receipt", invoice)

    def read_shop(self, firing):
        cursor = self.book.cursor
        cursor.execute("SELECT invoice_no, customer, amount, currency FROM invoice"
                       " WHERE due = %s::date ORDER BY 1", (firing,))
        invoices = [Invoice(*row) for row in cursor.fetchall()]
        cursor.execute("SELECT invoice_no FROM receipt")
        return invoices, {row[0] for row in cursor.fetchall()}

    def charge(self, invoice):
        """True when the invoice is known to be charged, by us or by an earlier run."""
        asked = time.monotonic()
        verdict, reference = self.book.begin(invoice)
        if verdict == "go":
            self.at("after_begin", invoice)
            return self.act(invoice, reference, asked)
        if verdict == "done":
            tell("duplicate", invoice=invoice.no)
            return True
        tell("left", invoice=invoice.no, verdict=verdict)
        if verdict == "unapproved":
            # It is claimed, and somebody is being asked.  On with the others meanwhile.
            self.unapproved[invoice] = reference
            self.at("unapproved", invoice)
        # unknown: sweep's turn.  busy: someone is at it.  A verdict that this program
        # does not know: it must not act either.
        return False

    def charge_if_approved(self, invoice, reference):
        asked = time.monotonic()
        verdict = self.book.submit(reference)
        if verdict == "unapproved":
            return False
        del self.unapproved[invoice]
        if verdict != "go":
            tell("left", invoice=invoice.no, verdict=verdict)
            return False
        tell("waited", invoice=invoice.no)
        self.at("after_begin", invoice)
        return self.act(invoice, reference, asked)

    def act(self, invoice, reference, asked):
        if time.monotonic() - asked > SEND_WITHIN:
            # We slept on our `go`.  By now someone may have looked at the far side,
            # found nothing, and let another run try: it is too late to send.
            self.book.retract(reference, "slept before sending")
            return False
        try:
            status, answer = self.send(invoice, reference)
        except ConnectionRefusedError:
            self.book.retract(reference, "connection refused")
            return False
        except (OSError, http.client.HTTPException) as lost:
            tell("dropped", invoice=invoice.no)
            self.at("answer_lost", invoice)
            self.book.mark_unknown(reference, f"answer lost: {type(lost).__name__}")
            self.at("after_mark_unknown", invoice)
            return False
        if status == 503:
            tell("refused", invoice=invoice.no)
            self.book.retract(reference, answer["error"])
            return False
        self.at("after_response", invoice)
        self.book.complete(reference, answer)
        tell("charged", invoice=invoice.no)
        self.at("after_complete", invoice)
        return True

    def send(self, invoice, reference):
        body = json.dumps({"reference": reference, "invoice": invoice.no,
                           "customer": invoice.customer, "amount": str(invoice.amount),
                           "currency": invoice.currency}).encode()
        far_side = http.client.HTTPConnection("127.0.0.1", self.far_side, timeout=5)
        try:
            far_side.putrequest("POST", "/charge")
            far_side.putheader("Content-Type", "application/json")
            far_side.putheader("Content-Length", str(len(body)))
            far_side.putheader("Idempotency-Key", reference)    # a good provider would look at it
            far_side.endheaders()
            self.at("request_half_sent", invoice)
            far_side.send(body)
            self.at("request_sent", invoice)
            answer = far_side.getresponse()
            return answer.status, json.load(answer)
        finally:
            far_side.close()

    def keep_lease(self, invoice):
        if time.monotonic() - self.renewed < self.book.lease / 4:
            return
        self.at("before_renew", invoice)
        self.book.renew()
        self.renewed = time.monotonic()
        self.at("after_renew", invoice)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--owner", required=True)
    parser.add_argument("--firing", required=True)
    parser.add_argument("--far-side", type=int, required=True, help="its port")
    parser.add_argument("--lease", type=float, required=True, help="in seconds")
    parser.add_argument("--textbook", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)    # the supervisor's to handle
    kind = textbook if options.textbook else with_effect
    run = Run(kind.Book(options.owner, options.lease), options.far_side)
    try:
        return run.work(options.firing)
    except kind.Fenced as fenced:
        tell("fenced", where=str(fenced))
        if not run.book.end("failed"):
            tell("unreleased")
        return FENCED


if __name__ == "__main__":
    sys.exit(main())
