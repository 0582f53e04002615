"""The hosts: each has a scheduler that starts the nightly job, and tries again until the
firing has run to its end.  Every run is a process of its own."""
import json
import os
import random
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RETRY = 0.4             # seconds before a run that failed, or died, is tried again
AT_MOST = 0.6           # seconds between two tries while someone else holds the lease


class Child:
    """A process that prints its events, each a line of JSON."""

    def __init__(self, script, *arguments):
        self.script = script
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(HERE, script), *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=HERE)
        self.rest = b""

    def fileno(self):
        return self.process.stdout.fileno()

    def read_events(self):
        """The events that have arrived; None when there will be no more."""
        data = os.read(self.fileno(), 65536)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def write(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError:
            pass                # it is gone; reap() will say how

    def signal(self, number):
        if self.process.returncode is None:
            self.process.send_signal(number)

    def reap(self):
        code = self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        return code


class Run(Child):
    """One run of the job on one host."""

    def __init__(self, host, number, night):
        self.host = host
        self.owner = f"{host.name}#{number}"
        self.order = None       # what the plan has in store for it
        self.waiting = False    # it has said that it is at that point
        self.invoice = None     # ... with this invoice in hand
        self.ended = None       # its last word: the outcome, or already_ran
        self.wait = RETRY
        super().__init__("worker.py", "--owner", self.owner, "--firing", night.firing,
                         "--far-side", str(night.port), "--lease", str(night.plan.lease),
                         *night.worker_options)

    def stop(self):
        """SIGSTOP, and see that it has stopped."""
        self.signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)


class Host:
    """A scheduler.  It knows nothing of the others: two of them fire at once, and while
    a deploy is under way four do."""

    def __init__(self, name, night):
        self.name = name
        self.night = night
        self.run = None
        self.runs = 0
        self.next_try = 0.0
        self.retired = False
        self.done = False

    def tick(self):
        if self.run or self.retired or self.done or time.monotonic() < self.next_try:
            return
        self.runs += 1
        self.run = Run(self, self.runs, self.night)
        self.night.watch(self.run)

    def held(self, run, seconds):
        """No use asking again much before the lease that is in the way ends."""
        run.wait = min(max(seconds or 0, 0.05), AT_MOST)

    def ended(self, run):
        self.run = None
        self.done = run.ended in ("finished", "already_ran")
        self.next_try = time.monotonic() + run.wait + random.uniform(0, 0.05)

    def over(self):
        return not self.run and (self.done or self.retired)
