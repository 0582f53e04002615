"""The nightly job's bookkeeping, with effect.

Compare textbook.py: the same questions, asked of a lease row and a log.
"""
import json

import psycopg2

from common import JOB, LARGE, connect

CLAIM = """
    SELECT verdict, fencing_token,
           extract(epoch FROM lease_until - clock_timestamp())::float8
      FROM effect.claim_lease(%s, %s, make_interval(secs => %s), firing => %s)"""

BEGIN = """
    SELECT verdict, effect_key
      FROM effect.begin_effect(%s, %s,
               effect.facts('customer', %s, 'amount', %s::numeric, 'currency', %s),
               job_key => %s, fencing_token => %s, terms_shown => %s)"""

SUBMIT = "SELECT verdict FROM effect.submit_effect(%s, %s)"


class Fenced(Exception):
    """Somebody else has the job: stop, and do not retry."""


class Book:
    role = "app"

    def __init__(self, owner, lease):
        self.owner = owner
        self.lease = lease
        self.token = None
        self.db = connect(self.role, owner)
        self.cursor = self.db.cursor()

    def one(self, query, *values):
        self.cursor.execute(query, values)
        return self.cursor.fetchone()

    def claim(self, firing):
        """The verdict, and in how many seconds it is worth asking again."""
        verdict, self.token, left = self.one(CLAIM, JOB, self.owner, self.lease, firing)
        return verdict, left

    def begin(self, invoice):
        """May this invoice be charged now?  The verdict, and the reference to charge under."""
        action = "charge-large" if invoice.amount > LARGE else "charge"
        # What the approver is shown, and approves.
        terms = f"charge {invoice.amount} {invoice.currency} to {invoice.customer}"
        verdict, key = self.one(BEGIN, action, invoice.no, invoice.customer, invoice.amount,
                                invoice.currency, JOB, self.token, terms)
        return self.when_committed(verdict, "begin"), key

    def submit(self, key):
        """The same of one that begin() has claimed, but that was not approved yet."""
        return self.when_committed(self.one(SUBMIT, key, self.token)[0], "submit")

    def when_committed(self, verdict, where):
        if verdict == "go_after_commit":
            # Not here, with autocommit.  Under a driver that opens transactions by
            # itself the evidence is not durable yet: commit, and only then act.
            self.db.commit()
            verdict = "go"
        return self.unless_fenced(verdict, where)

    def complete(self, key, answer):
        self.settle("complete", "SELECT verdict FROM effect.complete_effect(%s, %s, %s)",
                    key, self.token, json.dumps(answer))

    def retract(self, key, why):
        """It certainly did not happen."""
        self.settle("retract", "SELECT verdict FROM effect.retract_effect(%s, %s, %s)",
                    key, self.token, json.dumps({"why": why}))

    def mark_unknown(self, key, why):
        """It may have happened: sweep will have a look."""
        self.settle("mark_unknown", "SELECT verdict FROM effect.mark_unknown(%s, %s, %s)",
                    key, self.token, why)

    def settle(self, where, query, *values):
        self.unless_fenced(self.one(query, *values)[0], where)

    def unless_fenced(self, verdict, where):
        if verdict == "fenced":
            raise Fenced(where)
        return verdict

    def write_receipt(self, invoice, at):
        """A write of our own: the transaction commits only while the token is current."""
        where = "fence"
        try:
            self.cursor.execute("BEGIN")
            self.cursor.execute("SELECT effect.fence(%s, %s)", (JOB, self.token))
            at("fence_taken", invoice)
            self.cursor.execute(
                "INSERT INTO receipt (invoice_no, written_by, fencing_token) VALUES (%s, %s, %s)"
                " ON CONFLICT DO NOTHING", (invoice.no, self.owner, self.token))
            at("row_written", invoice)
            where = "commit"
            self.cursor.execute("COMMIT")
        except psycopg2.Error as error:
            if where == "fence":        # a failed COMMIT has ended the transaction itself
                self.cursor.execute("ROLLBACK")
            if error.pgcode == "LE001":
                raise Fenced(where) from None
            raise

    def renew(self):
        if self.one("SELECT effect.renew_lease(%s, %s)", JOB, self.token)[0] is None:
            raise Fenced("renew")

    def release(self, outcome, left):
        if not self.end(outcome, {"left": left}):
            raise Fenced("release")

    def end(self, outcome, detail=None):
        """False for a run that was fenced, which is then written down: it was slow, not dead."""
        return self.one("SELECT effect.release_lease(%s, %s, %s, %s)",
                        JOB, self.token, outcome, json.dumps(detail))[0]
