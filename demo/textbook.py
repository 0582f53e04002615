"""The nightly job's bookkeeping as it is usually written: a lease row that is checked
once, and a log that is written after the call.

Each statement is right by itself.  What is missing is between them: nothing says that a
charge is about to be made, and nothing stops a run that has lost its lease.
"""
from common import JOB, connect

CLAIM = """
    UPDATE job_lease
       SET owner = %s, lease_until = clock_timestamp() + make_interval(secs => %s)
     WHERE job = %s AND firing = %s AND finished_at IS NULL
       AND (owner IS NULL OR lease_until < clock_timestamp())"""

HELD = """
    SELECT finished_at IS NOT NULL,
           extract(epoch FROM lease_until - clock_timestamp())::float8
      FROM job_lease WHERE job = %s AND firing = %s"""


class Fenced(Exception):
    """Never raised here: nobody tells a stale run."""


class Book:
    role = "app"

    def __init__(self, owner, lease):
        self.owner = owner
        self.lease = lease
        self.token = None
        self.firing = None
        self.db = connect(self.role, owner)
        self.cursor = self.db.cursor()

    def run(self, query, *values):
        self.cursor.execute(query, values)
        return self.cursor.rowcount

    def claim(self, firing):
        self.firing = firing
        self.run("INSERT INTO job_lease (job, firing) VALUES (%s, %s) ON CONFLICT DO NOTHING",
                 JOB, firing)
        if self.run(CLAIM, self.owner, self.lease, JOB, firing):
            return "granted", None
        self.run(HELD, JOB, firing)
        finished, left = self.cursor.fetchone()
        return "already_ran" if finished else "held", left

    def begin(self, invoice):
        """Is it in the log?  If not, charge it."""
        logged = self.run("SELECT FROM charge_log WHERE invoice_no = %s", invoice.no)
        return "done" if logged else "go", invoice.no

    def submit(self, reference):
        """Never called: no approval is asked for."""

    def complete(self, reference, answer):
        self.run("INSERT INTO charge_log (invoice_no, charge) VALUES (%s, %s)"
                 " ON CONFLICT DO NOTHING", reference, answer["charge"])

    def retract(self, reference, why):
        """Nothing was logged, so there is nothing to take back."""

    def mark_unknown(self, reference, why):
        """There is no word for this in the log: the next run will try again."""

    def write_receipt(self, invoice, at):
        self.cursor.execute("BEGIN")
        at("fence_taken", invoice)
        self.run("INSERT INTO receipt (invoice_no, written_by) VALUES (%s, %s)"
                 " ON CONFLICT DO NOTHING", invoice.no, self.owner)
        at("row_written", invoice)
        self.cursor.execute("COMMIT")

    def renew(self):
        self.run("UPDATE job_lease SET lease_until = clock_timestamp() + make_interval(secs => %s)"
                 " WHERE job = %s AND firing = %s AND owner = %s",
                 self.lease, JOB, self.firing, self.owner)

    def release(self, outcome, left):
        finished = "clock_timestamp()" if outcome == "finished" else "NULL"
        self.run(f"UPDATE job_lease SET owner = NULL, finished_at = {finished}"
                 " WHERE job = %s AND firing = %s AND owner = %s",
                 JOB, self.firing, self.owner)
