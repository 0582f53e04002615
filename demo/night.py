#!/usr/bin/env python3
"""The night: the main job, run by two hosts, through kills, pauses and a deploy.

It starts the far side, the sweeper, the approver and the hosts, carries out the plan, and
prints what came of it.  The exit code is 0 only if every promise held.  With --kills it
plays night after night, each with invoices of its own, until so many kills have landed.
"""
import argparse
import csv
import datetime
import json
import os
import random
import selectors
import signal
import sys
import time
from collections import Counter

import plan
import report
from common import connect
from hosts import HERE, Child, Host, Run

OVERLAP = 1.5       # seconds for which the old and the new schedulers live together
GRACE = 0.7         # seconds between SIGTERM and SIGKILL
WAKE = 0.2          # seconds after the theft of its lease at which a paused run goes on
TOO_MANY = 5        # runs that ended on an error, after which the night is given up
# How a run may end: by itself (see worker.py), by SIGTERM before it listened to it, killed.
EXITS = (0, 10, 11, 12, -signal.SIGTERM, -signal.SIGKILL)


class Night:
    def __init__(self, options):
        self.effect = not options.no_effect
        self.worker_options = [] if self.effect else ["--textbook"]
        self.seed = options.seed
        rng = random.Random(self.seed)
        self.series = options.kills is not None
        self.plan = (plan.Series(rng, self.effect, options.kills) if self.series
                     else plan.Plan(rng, self.effect))
        self.first = datetime.date.today()
        self.nights = 0
        self.counts = Counter()         # events of the runs, by name
        self.fenced = Counter()         # where runs were refused
        self.swept = Counter()          # what sweep said it did
        self.sleepers = []
        self.deploying = False
        self.timers = []
        self.children = []
        self.selector = selectors.DefaultSelector()
        self.started = time.monotonic()
        self.progress = report.Progress(self)
        self.begin_night()
        self.start_far_side(options.storage, rng.randrange(2 ** 32))
        if self.effect:
            self.start_helpers()

    def start_far_side(self, storage, seed):
        drop = ["--drop-every", *map(str, self.plan.drop_every)] if self.plan.drop_every else []
        far_side = Child("farside.py", "--storage", storage, "--seed", str(seed), *drop)
        self.children.append(far_side)
        self.port = int(far_side.process.stdout.readline())

    def start_helpers(self):
        """The sweeper, the resolver's address of the far side, and the approver, who first
        does what must be over before anybody works."""
        connect("ops", "night").cursor().execute("INSERT INTO far_side VALUES (%s)", (self.port,))
        self.watch(Child("sweeper.py"))
        approver = Child("approver.py")
        self.watch(approver)
        if json.loads(approver.process.stdout.readline() or "{}").get("event") != "ready":
            raise RuntimeError("the approver did not get ready")

    # ---- the nights

    @property
    def firing(self):
        return (self.first + datetime.timedelta(days=self.nights - 1)).isoformat()

    def begin_night(self):
        self.nights += 1
        self.plan.open_night()
        self.write_invoices()
        self.hosts = [Host("host-a/blue", self), Host("host-b/blue", self)]

    def write_invoices(self):
        """What is due tonight: in a later night the same invoices under new numbers."""
        suffix = f"/{self.nights}" if self.nights > 1 else ""
        cursor = connect("clerk", "clerk").cursor()
        with open(os.path.join(HERE, "invoices.csv"), encoding="utf-8") as file:
            for row in csv.DictReader(file):
                cursor.execute("INSERT INTO invoice VALUES (%s, %s, %s, %s, %s)",
                               (row["invoice_no"] + suffix, row["customer"], row["amount"],
                                row["currency"], self.firing))

    def play(self):
        """True when every firing was run to its end."""
        while self.play_night():
            if not (self.series and self.plan.todo):
                return True
            self.progress.line(f"the night of {self.firing} is over, the next one begins")
            self.begin_night()
        return False

    def play_night(self):
        """True when the firing was run to its end."""
        while not all(host.over() for host in self.hosts):
            if self.seconds() > self.plan.at_most or self.counts["crashed"] > TOO_MANY:
                return False
            for host in self.hosts:
                host.tick()
            self.fire_timers()
            for key, _ in self.selector.select(0.05):
                self.read(key.fileobj)
            self.progress.tick()
        return True

    def watch(self, child):
        self.children.append(child)
        self.selector.register(child, selectors.EVENT_READ)

    def read(self, child):
        events = child.read_events()
        if events is None:
            self.selector.unregister(child)
            self.children.remove(child)
            self.gone(child)
            return
        for event in events:
            name = event.pop("event")
            self.counts[name] += 1
            handle = getattr(self, "on_" + name, None)
            if handle:
                handle(child, **event)

    def later(self, seconds, action, *arguments):
        self.timers.append((time.monotonic() + seconds, action, arguments))

    def fire_timers(self):
        now = time.monotonic()
        due = [timer for timer in self.timers if timer[0] <= now]
        self.timers = [timer for timer in self.timers if timer[0] > now]
        for _, action, arguments in due:
            action(*arguments)

    def seconds(self):
        return time.monotonic() - self.started

    # ---- what the runs tell

    def on_granted(self, run, token):
        # A deploy may end any run: only kills can be tried again elsewhere meanwhile.
        self.give(run, self.plan.take(self.progress.open_invoices(),
                                      "kill" if self.deploying else None))
        for sleeper in self.sleepers:
            self.later(WAKE, self.wake, sleeper)
        self.sleepers = []

    def on_at(self, run, point, invoice):
        run.waiting, run.invoice = True, invoice
        getattr(self, run.order.how)(run)

    def on_held(self, run, seconds):
        run.host.held(run, seconds)

    on_coalesced = on_held      # a registered job's word for it

    def on_already_ran(self, run, seconds):
        run.ended = "already_ran"

    def on_released(self, run, outcome, left):
        run.ended = outcome

    def on_left(self, run, invoice, verdict):
        self.counts[f"told {verdict}"] += 1

    def on_fenced(self, run, where):
        self.fenced[where] += 1
        self.say(run, f"refused at {where}: fenced")

    def refusals(self):
        """Refused writes, and the releases that these runs were refused then."""
        return sum(self.fenced.values()) + self.counts["unreleased"]

    # ---- what the others tell

    def on_swept(self, sweeper, **did):
        self.swept.update(did)

    def swept_unknown(self):
        """How many sweep has resolved."""
        return self.swept["found_happened"] + self.swept["found_absent"]

    def on_approved(self, approver, invoice, terms):
        self.detail(f"the approver approves invoice {invoice}: {terms}")

    # ---- the orders of the plan

    def give(self, run, order):
        run.order, run.waiting = order, False
        run.write(f"{order.point} {order.passes}" if order else "- 0")

    def kill(self, run):
        run.signal(signal.SIGKILL)

    def pause(self, run):
        run.stop()
        self.sleepers.append(run)
        self.say(run, "SIGSTOP")

    def wake(self, run):
        self.plan.land(run.order)
        self.say(run, "SIGCONT; its lease was taken meanwhile, and it does not know")
        # Without effect it is not refused, and works on: it is in for more of the plan.  Not
        # for another pause: that would wait for a grant, and both hosts might sleep then.
        self.give(run, None if self.effect
                  else self.plan.take(self.progress.open_invoices(), "kill"))
        run.signal(signal.SIGCONT)

    def drain(self, run):
        self.plan.land(run.order)
        self.say(run, "SIGTERM; it finishes what it has in hand")
        run.signal(signal.SIGTERM)
        self.give(run, None)

    def deploy(self, run):
        """Blue-green: the new schedulers start, the old ones go a little later."""
        self.say(run, "hangs in its call")
        self.progress.line("deploy: the green schedulers start beside the blue ones")
        self.deploying = True
        blue = list(self.hosts)
        self.hosts += [Host("host-a/green", self), Host("host-b/green", self)]
        self.later(OVERLAP, self.retire, blue)

    def retire(self, blue):
        self.progress.line("deploy: the blue schedulers stop, their runs get SIGTERM")
        for host in blue:
            host.retired = True
            if host.run:
                host.run.signal(signal.SIGTERM)
        self.later(GRACE, self.finish_deploy, blue)

    def finish_deploy(self, blue):
        self.deploying = False
        for host in blue:
            if host.run:
                self.say(host.run, "has not left: SIGKILL")
                host.run.signal(signal.SIGKILL)

    # ---- how they end

    def gone(self, child):
        code = child.reap()
        if not isinstance(child, Run):
            raise RuntimeError(f"{child.script} ended with status {code}")
        order = child.order
        if code == -signal.SIGKILL and child.waiting and order.how in ("kill", "deploy"):
            self.plan.land(order)       # only the wait status says that a kill has landed
            if order.how == "kill":
                self.say(child, "killed")
        elif order and not child.waiting:
            self.plan.give_back(order)
        if code not in EXITS:
            self.counts["crashed"] += 1
            self.progress.line(f"{child.owner}: ended with status {code}")
        child.host.ended(child)

    def say(self, run, what):
        where = f" at {run.order.point}" if run.waiting else ""
        where += f", invoice {run.invoice}" if run.invoice else ""
        self.detail(f"{run.owner}{where}: {what}")

    def detail(self, text):
        """Of one night every event is shown; of a series, with its hundreds, how it goes."""
        if not self.series:
            self.progress.line(text)

    def close(self):
        """Leave nothing behind, stopped or running."""
        for child in self.children:
            child.signal(signal.SIGKILL)
        for child in self.children:
            child.reap()
        self.children = []


def interrupted(number, frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-effect", action="store_true", help="the textbook's lease and log")
    parser.add_argument("--kills", type=int, help="so many, in as many nights as that takes")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--storage", required=True, help="the far side's, a file to be made")
    parser.add_argument("--pid-file", required=True)
    parser.add_argument("--page", help="where to write the dashboard page")
    options = parser.parse_args()
    # A session of its own: Ctrl-C reaches the script alone, which then asks us to end.
    os.setsid()
    with open(options.pid_file, "w") as file:
        file.write(f"{os.getpid()}\n")
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    night = None
    try:
        night = Night(options)
        ended = night.play()
        return report.print_report(night, ended, options.page)
    except KeyboardInterrupt:
        return 130
    except RuntimeError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    finally:
        if night:
            night.close()


if __name__ == "__main__":
    sys.exit(main())
