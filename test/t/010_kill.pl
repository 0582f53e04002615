# SIGKILL of backends and of clients: evidence before the act (DESIGN promises 4,
# 5 and 6; cases 02, 15, 31, 37, 45).
#
# Whatever line a crash hits, an effect is claimed, submitted, unknown or done,
# and never nothing after someone was told `go`. Backends are killed while they
# sleep in a known wait event, clients at named points, and a harness of workers
# at random moments while a far side counts.

use strict;
use warnings;

use IO::Handle;
use Test::More;
use Time::HiRes qw(sleep time);
use EffectTest;

seed();
my $node = new_node('kill', conf => "wal_level = replica\nmax_wal_senders = 2\neffect.default_settle = 0\n");
my $dir  = $node->basedir;

# SIGKILL one backend; the postmaster takes all of them down and starts again.
sub kill_backend
{
	my ($pid) = @_;
	kill 'KILL', $pid or die "backend $pid is not there";
	wait_until('the killed backend to be gone', sub { !kill 0, $pid });
	let_go();
	return wait_until('the server to be back', sub { session($node) });
}

# ---------------------------------------------------------------------------
# Backends killed while they wait.
# ---------------------------------------------------------------------------

{
	my $one = session($node);
	$one->begin_work;
	is(verdict($one, q(SELECT * FROM effect.claim_lease('claim', 'one', '1 hour'))), 'granted', 'claim: one holds it, not committed');
	my ($two, $answer) = background($node, q(SELECT * FROM effect.claim_lease('claim', 'two', '1 hour')));
	wait_event_of($one, $two, 'advisory');
	my $dbh = kill_backend($two);
	is($answer->(), undef, 'claim: the killed one was answered nothing');
	is(value($dbh, 'SELECT count(*) FROM effect.leases'), 0, 'claim: nobody was granted anything');
	is(row($dbh, q(SELECT * FROM effect.claim_lease('claim', 'three', '1 hour')))->{fencing_token}, 1, 'claim: the next one is granted');
}

{
	my ($worker, $other) = (session($node), session($node));
	my $complete = 'SELECT * FROM effect.complete_effect(' . key_of('pay', 'complete') . q{, 1, '"paid"')};
	is(verdict($worker, q(SELECT * FROM effect.begin_effect('pay', 'complete'))), 'go', 'complete: told go');
	$other->begin_work;
	$other->do('SELECT effect.mark_unknown(' . key_of('pay', 'complete') . q{, 1, 'impatient')});
	my ($pid, $answer) = background($node, $complete);
	wait_event_of($other, $pid, 'transactionid');
	my $dbh = kill_backend($pid);
	is($answer->(), undef, 'complete: killed while it waited');
	is(value($dbh, q(SELECT state FROM effect.effects WHERE target = 'complete')), 'submitted', 'complete: still submitted');
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'complete'))), 'busy', 'complete: nobody else is told go');
	is(verdict($dbh, $complete), 'done', 'complete: the answer is taken from a new connection');
}

{
	# A COMMIT that waits for a standby that never comes: durable here, not yet answered.
	my $dbh = session($node);
	$dbh->do(q(ALTER SYSTEM SET synchronous_standby_names = 'nobody'));
	$dbh->do('SELECT pg_reload_conf()');
	wait_until('the reload', sub { value(session($node), 'SHOW synchronous_standby_names') eq 'nobody' });
	my ($pid, $answer) = background($node, q(SET synchronous_commit = on), q(SELECT * FROM effect.begin_effect('pay', 'begin')));
	wait_event_of($dbh, $pid, 'SyncRep');
	$dbh->do(q(ALTER SYSTEM RESET synchronous_standby_names));
	$dbh = kill_backend($pid);
	$dbh->do('SELECT pg_reload_conf()');
	wait_until('the reload', sub { value(session($node), 'SHOW synchronous_standby_names') eq '' });
	is($answer->(), undef, 'begin: go is not said before the commit is over');
	is(value($dbh, q(SELECT state FROM effect.effects WHERE target = 'begin')), 'submitted', 'begin: killed inside COMMIT, the evidence is there');
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'begin'))), 'busy', 'begin: nobody else is told go');
}

{
	my ($worker, $watch) = (session($node), session($node));
	$worker->begin_work;
	is(verdict($worker, q(SELECT * FROM effect.begin_effect('pay', 'block'))), 'go_after_commit', 'block: not go before COMMIT');
	my $dbh = kill_backend($worker->{pg_pid});
	is(value($dbh, q(SELECT count(*) FROM effect.effects WHERE target = 'block')), 0, 'block: killed before COMMIT, it never was');
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'block'))), 'go', 'block: the retry is told go');
}

{
	my ($old, $thief) = (session($node), session($node));
	$old->do(q(SELECT effect.claim_lease('steal', 'old', '1 millisecond')));
	is(verdict($old, q(SELECT * FROM effect.begin_effect('pay', 'steal', '{}', 'steal', 1))), 'go', 'thief: old holder has sent something');
	wait_expired($old, 'steal');
	$thief->begin_work;
	is(verdict($thief, q(SELECT * FROM effect.claim_lease('steal', 'thief', '1 hour'))), 'granted', 'thief: steals, not committed');
	my $dbh = kill_backend($thief->{pg_pid});
	is(value($dbh, q(SELECT owner || fencing_token FROM effect.leases WHERE job_key = 'steal')), 'old1', 'thief: killed, nothing was stolen');
	ok(value($dbh, q(SELECT effect.renew_lease('steal', 1, '1 hour'))), 'thief: the old holder revives its lease');
	is(verdict($dbh, 'SELECT * FROM effect.complete_effect(' . key_of('pay', 'steal') . ', 1)'), 'done', 'thief: and completes');
}

{
	# A lost connection is not a lost lease.
	my $dbh    = session($node);
	my $holder = session($node);
	$holder->do(q(SELECT effect.claim_lease('terminate', 'n1', '1 hour')));
	$dbh->do('SELECT pg_terminate_backend(?)', undef, $holder->{pg_pid});
	wait_until('the backend to end', sub { !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $holder->{pg_pid}) });
	ok(value($dbh, q(SELECT effect.renew_lease('terminate', 1, '1 hour'))), 'terminated: the token still holds from another connection');
	$dbh->do(q(SELECT effect.revoke_lease('terminate', 'test')));
	is(verdict($dbh, q(SELECT * FROM effect.claim_lease('terminate', 'n2', '1 hour'))), 'granted', 'terminated: taken over');
	ok(!value($dbh, q(SELECT effect.is_current('terminate', 1))), 'terminated: the old token is not current');
	is(value($dbh, q(SELECT effect.renew_lease('terminate', 1))), undef, 'terminated: nor renewed');
}

{
	# A cancel passes through the wait of a claim, and leaves nothing held.
	my $one = session($node);
	$one->begin_work;
	$one->do(q(SELECT effect.claim_lease('cancel', 'one', '1 hour')));
	my ($pid, $answer) = background($node, q(SELECT * FROM effect.claim_lease('cancel', 'two', '1 hour')));
	wait_event_of($one, $pid, 'advisory');
	$one->do('SELECT pg_cancel_backend(?)', undef, $pid);
	is($answer->(), 'failed 57014', 'cancel: the waiting claim fails as cancelled, not as held');
	$one->rollback;
	is(verdict($one, q(SELECT * FROM effect.claim_lease('cancel', 'two', '1 hour'))), 'granted', 'cancel: and nothing is left locked');
}

# ---------------------------------------------------------------------------
# Clients killed at named points, and what the next run then does.
# ---------------------------------------------------------------------------

# The far side: one line a payment.  A worker is killed by itself, at the point
# it was told, after it has written down that it got there.
my $far_side = "$dir/far_side";

sub work
{
	my ($job, $target, $point) = @_;
	my $dbh = session($node);
	my $at  = sub { return if ($_[0] ne $point); note_line("$dir/landed", "$target $_[0]"); kill 'KILL', $$; sleep 10 };

	my $lease = row($dbh, 'SELECT * FROM effect.claim_lease(?, ?, $$1 hour$$)', $job, "w$$");
	return 'held' if $lease->{verdict} ne 'granted';
	my $token = $lease->{fencing_token};
	$at->('after claim');
	my $effect = row($dbh, 'SELECT * FROM effect.claim_effect($$pay$$, ?, $${}$$, ?, ?)', $target, $job, $token);
	$at->('after reserve');
	if ($effect->{verdict} eq 'unknown')
	{
		# Look at the far side, then say what was found.
		my $found = (grep { $_ eq $target } lines_of($far_side)) ? 'happened' : 'did_not_happen';
		$dbh->do('SELECT effect.resolve_unknown(?, ?, ?)', undef, $effect->{effect_key}, $found, $effect->{attempt});
		note_line("$dir/resolved", "$target $found");
		$effect = row($dbh, 'SELECT * FROM effect.claim_effect($$pay$$, ?, $${}$$, ?, ?)', $target, $job, $token);
	}
	if ($effect->{verdict} eq 'reserved')
	{
		my $go = verdict($dbh, 'SELECT * FROM effect.submit_effect(?, ?)', $effect->{effect_key}, $token);
		$at->('after go');
		note_line($far_side, $target) if $go eq 'go';
		$at->('after act');
		$dbh->do('SELECT effect.complete_effect(?, ?)', undef, $effect->{effect_key}, $token);
	}
	$at->('after complete');
	$dbh->do('SELECT effect.release_lease(?, ?)', undef, $job, $token);
	$at->('after release');
	return $effect->{verdict};
}

{
	my $dbh = session($node);
	my @points = ('after claim', 'after reserve', 'after go', 'after act', 'after complete', 'after release', 'nowhere');
	my %final;
	for my $point (@points)
	{
		(my $target = "order $point") =~ tr/ /-/;
		my $pid = spawn(sub { work($target, $target, $point) });
		waitpid $pid, 0;
		is($? & 127, $point eq 'nowhere' ? 0 : 9, "client: killed $point");
		$dbh->do('SELECT effect.revoke_lease(?, $$it was killed$$)', undef, $target)
		  if value($dbh, 'SELECT owner IS NOT NULL FROM effect.leases WHERE job_key = ?', $target);
		is(reap(spawn(sub { work($target, $target, 'nowhere') })), 0, "client: the next run after '$point' ends well");
		is(scalar(grep { $_ eq $target } lines_of($far_side)), 1, "client: killed $point, one payment at the far side");
		$final{ value($dbh, 'SELECT state FROM effect.effects WHERE target = ?', $target) }++;
	}
	is_deeply(\%final, { done => scalar @points }, 'client: all are done');
	is_deeply([ map { s/^\S+ //r } lines_of("$dir/landed") ], [ grep { $_ ne 'nowhere' } @points ], 'client: each kill landed at its point');
	is_deeply([ map { s/^\S+ //r } lines_of("$dir/resolved") ], [ 'did_not_happen', 'happened' ], 'client: unknown resolved: 2 of 2, by looking');
}

# ---------------------------------------------------------------------------
# Backends killed at random moments under a load of workers.
# ---------------------------------------------------------------------------

{
	my $rounds = $ENV{ROUNDS} || 8;
	my $sent   = "$dir/sent";
	my $done   = "$dir/done";
	my $lost = 0;
	for my $round (1 .. $rounds)
	{
		my @workers = map { my $w = $_; spawn(sub {
			my $dbh = session($node);
			for my $n (1 .. 100_000)
			{
				# Two workers a key, so that they also race.
				my $target = sprintf 'r%d-%d-%d', $round, int(($w + 1) / 2), $n;
				my $ok = eval {
					my $r = row($dbh, 'SELECT * FROM effect.begin_effect($$mail$$, ?)', $target);
					if ($r->{verdict} eq 'go')
					{
						note_line($sent, $target);
						note_line($done, $target)
						  if verdict($dbh, 'SELECT * FROM effect.complete_effect(?, ?, $$"sent"$$)', $r->{effect_key}, $r->{fencing_token}) eq 'done';
					}
					1;
				};
				return unless $ok;
			}
		}) } 1 .. 4;
		my $watch = session($node);
		wait_until('the workers to work', sub { value($watch, 'SELECT count(*) > 3 FROM effect.effects WHERE target LIKE ?', "r$round-%") });
		jitter(0.15);
		my $pid = value($watch, q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1));
		my $dbh = kill_backend($pid);
		reap(@workers);
		my %state = map { @$_ } @{ $dbh->selectall_arrayref('SELECT target, state FROM effect.effects WHERE target LIKE ?', undef, "r$round-%") };
		my @gone = grep { !$state{$_} || $state{$_} !~ /^(submitted|unknown|done)$/ } grep { /^r$round-/ } lines_of($sent);
		my @undone = grep { $state{$_} ne 'done' } grep { /^r$round-/ } lines_of($done);
		$lost += @gone + @undone;
		diag("round $round: no evidence of @gone; not done: @undone") if @gone || @undone;
	}
	my %times;
	$times{$_}++ for lines_of($sent);
	is($lost, 0, "random: everything sent has its evidence, everything done is done ($rounds rounds)");
	cmp_ok(scalar(keys %times), '>', $rounds * 4, 'random: ' . keys(%times) . ' effects were sent');
	is(scalar(grep { $_ > 1 } values %times), 0, 'random: duplicate effects: 0');

	# What is left submitted is unknown once its time is up; looking at the far side ends it.
	my $dbh = session($node);
	my $open = $dbh->selectall_arrayref(q(SELECT effect_key, target, attempt FROM effect.effects WHERE action = 'mail' AND state <> 'done'), { Slice => {} });
	my $resolved = 0;
	for my $e (@$open)
	{
		$dbh->do('SELECT effect.mark_unknown(?, NULL, $$its worker was killed$$)', undef, $e->{effect_key});
		my $found = $times{ $e->{target} } ? 'happened' : 'did_not_happen';
		my $state = value($dbh, 'SELECT effect.resolve_unknown(?, ?, ?)', $e->{effect_key}, $found, $e->{attempt});
		$resolved++ if $state eq ($found eq 'happened' ? 'done' : 'claimed');
		note_line($sent, $e->{target}) if verdict($dbh, 'SELECT * FROM effect.begin_effect($$mail$$, ?)', $e->{target}) eq 'go';
	}
	is($resolved, scalar @$open, 'random: unknown resolved: ' . $resolved . ' of ' . @$open);
	%times = ();
	$times{$_}++ for lines_of($sent);
	is(scalar(grep { $_ != 1 } values %times), 0, 'random: and every effect is at the far side once');
}

$node->stop;
done_testing();
