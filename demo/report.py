"""What is shown while the night runs, and the table at its end."""
import json
import shutil
import sys
import time
import urllib.request
from collections import Counter

from common import connect
from plan import POINTS

PROGRESS = {
    True: "SELECT count(*) FILTER (WHERE state = 'done'), count(*) FILTER (WHERE state = 'unknown')"
          " FROM effect.effects",
    False: "SELECT count(*), 0 FROM charge_log",
}


class Progress:
    """One line that is written over, on a terminal; else a line now and then."""

    def __init__(self, night):
        self.night = night
        self.terminal = sys.stdout.isatty()
        self.every = 0.2 if self.terminal else 2.0
        self.next = time.monotonic()
        self.cursor = connect("watch", "progress").cursor()
        self.shown = False

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
        line = (f"{night.seconds():5.1f} s  recorded {done}, kills {kills.count('kill')} of "
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
            self.read_ledger(night, cursor)

    def read_ledger(self, night, cursor):
        cursor.execute("SELECT state, count(*) FROM effect.effects GROUP BY 1")
        self.states = dict(cursor.fetchall())
        cursor.execute("SELECT outcome, count(*) FROM effect.runs GROUP BY 1 ORDER BY 1")
        self.runs = dict(cursor.fetchall())
        self.found = Counter(night.resolved.values())


def rows_of(night, found):
    """(what, value, note); a dash is a rule."""
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


def rows_of_plan(night):
    orders = night.plan
    yield "runs started", night.counts["granted"], "granted the lease"
    yield "kills landed", landed(orders, "kill"), "SIGKILL at:"
    for point in POINTS:
        if orders.planned["kill", point]:
            yield "  " + point, landed(orders, "kill", point), ""
    yield "pauses longer than the lease", landed(orders, "pause"), "SIGSTOP, theft, SIGCONT"
    yield "drained by SIGTERM", landed(orders, "drain"), ""
    yield "killed by the deploy", landed(orders, "deploy"), "SIGTERM, then SIGKILL"


def landed(orders, how, point=None):
    if point:
        return f"{orders.landed[how, point]} of {orders.planned[how, point]}"
    return f"{orders.count(how)} of {orders.count(how, orders.planned)}"


def rows_of_ledger(night, found):
    yield "unknown met", len(night.met), ""
    yield "unknown resolved", len(night.resolved), listed(found.found)
    yield "asks blocked by an unknown", night.counts["told unknown"], ""
    yield "fenced writes", sum(night.fenced.values()), listed(night.fenced)
    yield "outcomes of the runs", sum(found.runs.values()), listed(found.runs)


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
    if night.met != set(night.resolved):
        yield f"{len(night.met - set(night.resolved))} unknown not resolved"
    if sum(night.fenced.values()) < night.plan.count("pause"):
        yield "a paused run was not refused"
    if night.counts["crashed"]:
        yield f"{night.counts['crashed']} runs ended on an error"
    for (how, point), count in night.plan.missed().items():
        yield f"{how} at {point}: {count} did not land"


def print_table(night, found):
    title = "with effect" if night.effect else "without effect: a lease row and a log"
    print(f"\nThe night of {night.firing}, {title}  (seed {night.seed}, {night.seconds():.1f} s)\n")
    for what, value, note in rows_of(night, found):
        print(("  " + "-" * 44 if what == "-" else f"  {what:<34}{value!s:>10}  {note}").rstrip())
    print()


def print_report(night, ended):
    """The table and the verdict; the exit code."""
    found = Findings(night)
    night.progress.line("the night is over" if ended else "the night is given up")
    print_table(night, found)
    if not night.effect:
        print(f"Without effect: {found.charged_twice} invoices were charged more than once,"
              f" {found.duplicates} charges to pay back.")
        return 0 if ended else 1
    problems = list(problems_of(night, found, ended))
    for problem in problems:
        print(f"FAILED: {problem}")
    if not problems:
        print(f"OK: {len(found.invoices)} invoices, each charged exactly once, through"
              f" {night.plan.count('kill')} kills, {night.plan.count('pause')} stolen leases"
              " and a deploy.")
    return 1 if problems else 0
