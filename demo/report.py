"""What is shown while the night runs, and the table at its end."""
import json
import shutil
import sys
import time
import urllib.request
from collections import Counter

from common import connect
from page import differences, write_page
from plan import POINTS

PROGRESS = {
    True: "SELECT count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'unknown')"
          " FROM effect.effects",
    False: "SELECT count(*), 0 FROM charge_log",
}

OPEN = """
    SELECT count(*) FROM invoice i WHERE due = %s::date
       AND NOT EXISTS (SELECT FROM receipt r WHERE r.invoice_no = i.invoice_no)"""

# Every attempt that was unknown, and what was found of it.
UNKNOWN = """
    SELECT effect_key, attempt,
           max(detail) FILTER (WHERE event = 'finding' AND detail <> 'cannot_tell')
      FROM effect.journal
     WHERE event IN ('unknown', 'finding') GROUP BY 1, 2"""

APPROVALS = """
    SELECT count(*), count(consumed_at), count(revoked_at),
           count(*) FILTER (WHERE consumed_at IS NULL AND revoked_at IS NULL)
      FROM effect.approval"""

# Large charges, and those of them that nobody's approval was spent on.
LARGE_CHARGES = """
    SELECT count(*), count(*) FILTER (WHERE NOT EXISTS (
               SELECT FROM effect.approval a
                WHERE a.effect_key = e.effect_key AND a.consumed_at IS NOT NULL))
      FROM effect.effects e WHERE action = 'charge-large'"""


class Progress:
    """One line that is written over, on a terminal; else a line now and then."""

    def __init__(self, night):
        self.night = night
        self.terminal = sys.stdout.isatty()
        self.every = 0.2 if self.terminal else 10.0 if night.series else 2.0
        self.next = time.monotonic()
        self.cursor = connect("watch", "progress").cursor()
        self.shown = False

    def open_invoices(self):
        """How many of tonight's have no receipt yet."""
        self.cursor.execute(OPEN, (self.night.firing,))
        return self.cursor.fetchone()[0]

    def tick(self):
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + self.every
        status = self.status()
        if self.terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{status[:width]}", end="", flush=True)
            self.shown = True
        else:
            print(status, flush=True)

    def status(self):
        night = self.night
        self.cursor.execute(PROGRESS[night.effect])
        done, unknown = self.cursor.fetchone()
        kills = night.plan
        line = f"{night.seconds():5.1f} s  " + (f"night {night.nights}, " if night.series else "")
        line += (f"recorded {done}, kills {kills.count('kill')} of "
                 f"{kills.count('kill', kills.planned)}, pauses {kills.count('pause')} of "
                 f"{kills.count('pause', kills.planned)}")
        return line + (f", unknown now {unknown}" if night.effect else "")

    def line(self, text):
        if self.shown:
            print("\r\x1b[K", end="")
            self.shown = False
        print(f"{self.night.seconds():5.1f} s    {text}", flush=True)
        self.next = min(self.next, time.monotonic() + self.every)


class Findings:
    """What the two sides' books say when the night is over."""

    def __init__(self, night):
        cursor = night.progress.cursor
        cursor.execute("SELECT invoice_no, amount::text, currency FROM invoice")
        self.invoices = {no: (amount, currency) for no, amount, currency in cursor.fetchall()}
        with urllib.request.urlopen(f"http://127.0.0.1:{night.port}/charges", timeout=5) as answer:
            self.charges = json.load(answer)
        charged = Counter(charge["invoice"] for charge in self.charges)
        self.duplicates = sum(count - 1 for count in charged.values())
        self.charged_twice = sum(1 for count in charged.values() if count > 1)
        self.missing = sum(1 for invoice in self.invoices if not charged[invoice])
        self.wrong = sum(1 for charge in self.charges
                         if self.invoices.get(charge["invoice"])
                         != (charge["amount"], charge["currency"]))
        cursor.execute("SELECT count(*) FROM receipt")
        self.receipts = cursor.fetchone()[0]
        if night.effect:
            self.read_ledger(cursor)

    def read_ledger(self, cursor):
        cursor.execute("SELECT state, count(*) FROM effect.effects GROUP BY 1")
        self.states = dict(cursor.fetchall())
        cursor.execute("SELECT outcome, count(*) FROM effect.runs GROUP BY 1 ORDER BY 1")
        self.runs = dict(cursor.fetchall())
        cursor.execute(UNKNOWN)
        found = [finding for _, _, finding in cursor.fetchall()]
        self.met = len(found)
        self.found = Counter(filter(None, found))
        cursor.execute(APPROVALS)
        self.given, self.spent, self.revoked, self.unused = cursor.fetchone()
        cursor.execute(LARGE_CHARGES)
        self.large, self.unapproved = cursor.fetchone()

    @property
    def resolved(self):
        return sum(self.found.values())


def rows_of(night, found):
    """(what, value, note); a dash is a rule."""
    if night.series:
        yield "nights", night.nights, ""
    yield "invoices", len(found.invoices), ""
    yield "charges at the far side", len(found.charges), ""
    yield "duplicate charges", found.duplicates, ""
    yield "missing charges", found.missing, ""
    yield "wrong amounts", found.wrong, ""
    yield "receipts written", found.receipts, ""
    yield "-", "", ""
    yield from rows_of_plan(night)
    yield "-", "", ""
    yield "answers lost by the far side", night.counts["dropped"], ""
    yield "requests refused by the far side", night.counts["refused"], ""
    if night.effect:
        yield from rows_of_ledger(night, found)
    yield "duplicates suppressed", night.counts["duplicate"], "asked again, told done"
    if night.effect:
        yield "-", "", ""
        yield from rows_of_approvals(night, found)


def rows_of_plan(night):
    orders = night.plan
    yield "runs started", night.counts["granted"], "granted the lease"
    yield "kills landed", landed(orders, "kill"), "SIGKILL at:"
    for point in POINTS:
        if orders.planned["kill", point]:
            yield "  " + point, landed(orders, "kill", point), ""
    if orders.count("pause", orders.planned):
        yield "pauses longer than the lease", landed(orders, "pause"), "SIGSTOP, theft, SIGCONT"
    if orders.count("deploy", orders.planned):
        yield "drained by SIGTERM", landed(orders, "drain"), ""
        yield "killed by the deploy", landed(orders, "deploy"), "SIGTERM, then SIGKILL"


def landed(orders, how, point=None):
    if point:
        return f"{orders.landed[how, point]} of {orders.planned[how, point]}"
    return f"{orders.count(how)} of {orders.count(how, orders.planned)}"


def rows_of_ledger(night, found):
    yield "unknown met", found.met, ""
    yield "unknown resolved by sweep", night.swept_unknown(), listed(found.found)
    yield "asks blocked by an unknown", night.counts["told unknown"], ""
    yield "fenced writes", sum(night.fenced.values()), listed(night.fenced)
    yield "refused in all", night.refusals(), "these runs were refused their release, too"
    yield "outcomes of the runs", sum(found.runs.values()), listed(found.runs)
    yield "runs ended by sweep", night.swept["runs_abandoned"], "before anybody took their lease"


def rows_of_approvals(night, found):
    yield "charges that need an approval", found.large, ""
    yield "approvals given", found.given, "by a role of its own"
    yield "  spent", found.spent, "each by the one charge it was for"
    yield "  unused", found.unused, "nobody asked for it"
    yield "  revoked", found.revoked, "taken back before it was spent"
    yield "told unapproved", night.counts["told unapproved"], "left, and on with the others"
    yield "approved while a run waited", night.counts["waited"], "submitted by the run that asked"


def listed(counts):
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def problems_of(night, found, ended):
    """Each promise that did not hold, in words."""
    if not ended:
        yield "the night was given up"
    if found.duplicates:
        yield f"{found.duplicates} duplicate charges"
    if found.missing:
        yield f"{found.missing} missing charges"
    if found.wrong:
        yield f"{found.wrong} charges of a wrong amount"
    if found.receipts != len(found.invoices):
        yield f"{found.receipts} receipts for {len(found.invoices)} invoices"
    if found.states != {"done": len(found.invoices)}:
        yield f"effects not done: {listed(found.states)}"
    if found.resolved != found.met:
        yield f"{found.met - found.resolved} unknown not resolved"
    if found.resolved != night.swept_unknown():
        yield f"{found.resolved} unknown resolved, {night.swept_unknown()} of them by sweep"
    if found.unapproved:
        yield f"{found.unapproved} charges without the approval they need"
    if (found.spent, found.unused, found.revoked) != (found.large, 1, 1):
        yield "approvals were not spent as they should: see the table"
    if sum(night.fenced.values()) < night.plan.count("pause"):
        yield "a paused run was not refused"
    if night.counts["crashed"]:
        yield f"{night.counts['crashed']} runs ended on an error"
    for (how, point), count in night.plan.missed().items():
        yield f"{how} at {point}: {count} did not land"


def print_table(night, found):
    when = f"The night of {night.firing}"
    if night.nights > 1:
        when = f"The {night.nights} nights of {night.first.isoformat()} to {night.firing}"
    title = "with effect" if night.effect else "without effect: a lease row and a log"
    print(f"\n{when}, {title}  (seed {night.seed}, {night.seconds():.1f} s)\n")
    for what, value, note in rows_of(night, found):
        print(("  " + "-" * 44 if what == "-" else f"  {what:<34}{value!s:>10}  {note}").rstrip())
    print()


def print_report(night, ended, page):
    """The table and the verdict, and the page; the exit code."""
    found = Findings(night)
    night.close()
    night.progress.line("the night is over" if ended else "the night is given up")
    print_table(night, found)
    if not night.effect:
        print(f"Without effect: {found.charged_twice} invoices were charged more than once,"
              f" {found.duplicates} charges to pay back.")
        return 0 if ended else 1
    problems = list(problems_of(night, found, ended))
    if page:
        problems += differences(write_page(page), night, found)
    for problem in problems:
        print(f"FAILED: {problem}")
    if not problems:
        print(f"OK: {len(found.invoices)} invoices, each charged exactly once, through"
              f" {night.plan.count('kill')} kills, {night.plan.count('pause')} stolen leases"
              f"{'.' if night.series else ' and a deploy.'}")
    return 1 if problems else 0
