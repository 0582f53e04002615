# Counters are true: they survive rollbacks, cost a duplicate nothing, break no
# command, and delay nobody (DESIGN 4.9: each rule of flushing was learnt from a
# failure, and each is tested here).

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);
use EffectTest;

seed();
my $node = new_node('counters', init => { allows_streaming => 1 }, conf => "autovacuum = off\n");
my $dbh = session($node);

# What is written down, by whoever.
sub counted
{
	my ($name, $counter) = @_;
	return value($dbh, 'SELECT coalesce(sum(n), 0)::int FROM effect.counters WHERE name = ? AND counter = ?', $name, $counter);
}

# End a session, and wait until its backend is gone.
sub leave
{
	my ($s) = @_;
	my $pid = $s->{pg_pid};
	$s->disconnect;
	wait_until('the backend to end', sub { !value($dbh, 'SELECT count(*) FROM pg_stat_activity WHERE pid = ?', $pid) });
	return;
}

sub done { my ($s, $action, $target) = @_; return $s->do('SELECT effect.once(?, ?)', undef, $action, $target) }

# An action with one effect that has happened: doing it again is a duplicate.
sub action
{
	my ($action) = @_;
	done($dbh, $action, 'x');
	return $action;
}

sub duplicates { my ($s, $action, $n) = @_; done($s, $action, 'x') for 1 .. $n; return }

#
# N duplicates and M fenced writes from 8 sessions, half of them in transactions
# that roll back, half of the sessions closed.
#
my $a = action('eight');
$dbh->do(q(SELECT effect.claim_lease('eight', 'first', '1 hour')));
$dbh->do(q(SELECT effect.revoke_lease('eight', 'so that token 1 is superseded')));
my (%n, @children);
my $log = $node->basedir . '/eight';
for my $child (1 .. 8)
{
	my @steps = map { [ pick('duplicate', 'fenced'), pick(0, 1) ] } 1 .. 200;
	$n{ $_->[0] }++ for @steps;
	push @children, spawn(sub {
		my $s = session($node);
		for my $step (@steps)
		{
			$s->begin_work if $step->[1];
			$step->[0] eq 'duplicate' ? done($s, 'eight', 'x')
				: $s->do(q(SELECT effect.renew_lease('eight', 1)));
			$s->rollback if $step->[1];
		}
		if ($child % 2)
		{
			$s->disconnect;
			return;
		}
		# Those that stay open write theirs with the next call, once the interval is over.
		$s->do('SET effect.stats_flush_interval = 0');
		$s->do(q(SELECT * FROM effect.claim_effect('eight/other', ?)), undef, "child $child");
		note_line($log, 'written');
		sleep 0.01 while -e "$log.open";
	});
	note_line("$log.open", 'stay');
}
wait_until('the open sessions to have written', sub { (() = lines_of($log)) == 4 });
wait_until('the others to end', sub { value($dbh, q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')) == 5 });
is(counted('eight', 'duplicates'), $n{duplicate}, "duplicates: exactly $n{duplicate}");
is(counted('eight', 'fenced'), $n{fenced}, "fenced writes: exactly $n{fenced}");
unlink "$log.open";
is(reap(@children), 0, 'nobody failed');
is(value($dbh, q(SELECT duplicates FROM effect.action_stats WHERE action = 'eight')), $n{duplicate}, 'action_stats says so');
is(value($dbh, q(SELECT fenced FROM effect.job_stats WHERE job_key = 'eight')), $n{fenced}, 'job_stats says so');
$dbh->do('SELECT effect.sweep()');
is(counted('eight', 'duplicates'), $n{duplicate}, 'and the same once sweep has folded them');
is(value($dbh, 'SELECT count(*) FROM effect.counter_delta'), 0, 'no delta is left');

#
# A duplicate costs nothing: no transaction id, whoever else writes.
#
action('free');
my $s = session($node);
done($s, 'free', 'x');
my $before = value($dbh, 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
duplicates($s, 'free', 1000);
is(value($dbh, 'SELECT pg_snapshot_xmax(pg_current_snapshot())') - $before, 0, '1000 duplicates took no transaction id');
is(counted('free', 'duplicates'), 0, 'and wrote nothing');
done($s, 'free', 'y');
is(counted('free', 'duplicates'), 1001, 'the next call that writes takes them along');
leave($s);

#
# Nothing is written outside of our own calls.
#
action('inside');
$s = session($node);
$s->do('SET effect.stats_flush_interval = 0');
done($s, 'inside', 'x');
ok(eval { $s->do('VACUUM effect.cluster'); 1 }, 'VACUUM works with numbers in memory') or diag($@);
ok(eval { $s->do('CREATE DATABASE counters_other'); 1 }, 'so does CREATE DATABASE') or diag($@);
$before = value($dbh, 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
$s->do('BEGIN READ ONLY');
is(value($s, q(SELECT effect.is_current('eight', 1))), 0, 'a call in READ ONLY answers');
$s->do('COMMIT');
is(value($dbh, 'SELECT pg_snapshot_xmax(pg_current_snapshot())') - $before, 0, 'READ ONLY stays so');
is(counted('inside', 'duplicates'), 0, 'nothing was written by any of them');
done($s, 'inside', 'x');
is(counted('inside', 'duplicates'), 1, 'the next call of ours writes what was counted before it');
is(counted('eight', 'fenced'), $n{fenced} + 1, 'what READ ONLY counted, too');
leave($s);
is(counted('inside', 'duplicates'), 2, 'and its own is written as the session ends');

#
# Savepoints and transactions: what was written and rolled back counts again, once.
#
action('rolled');
$s = session($node);
$s->do('SET effect.stats_flush_interval = 0');
$s->begin_work;
duplicates($s, 'rolled', 3);                 # the third has written the first two
$s->do('SAVEPOINT a');
duplicates($s, 'rolled', 2);
$s->do('ROLLBACK TO a');
$s->do('SAVEPOINT b');
duplicates($s, 'rolled', 2);
$s->do('RELEASE b');
$s->rollback;
is(counted('rolled', 'duplicates'), 0, 'the transaction that wrote them was rolled back');
duplicates($s, 'rolled', 1);
is(counted('rolled', 'duplicates'), 7, 'all of them are written by the next');
leave($s);
is(counted('rolled', 'duplicates'), 8, 'and none twice');

# Deeds are not answers: they count if they are committed.
$s = session($node);
$s->do('SET effect.stats_flush_interval = 0');
$s->begin_work;
done($s, 'deeds', 'one');
$s->do('SAVEPOINT a');
done($s, 'deeds', 'two');
$s->do('ROLLBACK TO a');
done($s, 'deeds', 'three');
$s->commit;
$s->begin_work;
done($s, 'deeds', 'four');
$s->rollback;
leave($s);
is(counted('deeds', 'applied'), 2, 'two of four inside effects were committed');

#
# PREPARE: in doubt until the prepared transaction has ended.
#
action('prepared');
$s = session($node);
$s->do('SET effect.stats_flush_interval = 0');
for my $end ('COMMIT', 'ROLLBACK')
{
	$s->do('BEGIN');
	duplicates($s, 'prepared', 3);
	done($s, 'prepared', "new with $end");
	$s->do("PREPARE TRANSACTION 'counters'");
	duplicates($s, 'prepared', 1);           # while it is in doubt
	$s->do("$end PREPARED 'counters'");
	duplicates($s, 'prepared', 1);
	done($s, 'prepared', 'y') if $end eq 'COMMIT';
	done($s, 'prepared', 'y');
}
leave($s);
is(counted('prepared', 'duplicates'), 2 * 5 + 2, 'duplicates of a transaction that was prepared, once each');
is(counted('prepared', 'applied'), 2, 'and its deeds: the one that was committed, and the one after it');

#
# The end of a session.
#
action('end');
my $expected = 0;
for my $way (
	[ 'under default_transaction_read_only', sub { $_[0]->do('SET default_transaction_read_only = on') } ],
	[ 'under default_transaction_isolation = serializable', sub { $_[0]->do(q(SET default_transaction_isolation = 'serializable')) } ],
	[ 'in a transaction that is open', sub { $_[0]->begin_work; $_[0]->do('SELECT 1') } ],
	[ 'in one that has failed', sub { $_[0]->begin_work; eval { $_[0]->do('SELECT 1/0') } } ],
	[ 'in one that is READ ONLY', sub { $_[0]->do('BEGIN READ ONLY'); $_[0]->do('SELECT 1') } ],
	[ 'under another role', sub { $_[0]->do('SET ROLE counters_worker') } ],
	[ 'terminated', sub { $dbh->do('SELECT pg_terminate_backend(?)', undef, $_[0]->{pg_pid}) } ])
{
	$dbh->do('CREATE ROLE counters_worker') if $way->[0] =~ /role/;
	$s = session($node);
	duplicates($s, 'end', 2);
	$way->[1]->($s);
	$s->{InactiveDestroy} = 1 if $way->[0] eq 'terminated';
	leave($s);
	is(counted('end', 'duplicates'), $expected += 2, "counted at the end of a session $way->[0]");
}

# Behind ACCESS EXCLUSIVE it does not wait: a moment's numbers are worth less.
$s = session($node);
duplicates($s, 'end', 2);
my $other = session($node);
$other->begin_work;
$other->do('LOCK TABLE effect.counter_delta IN ACCESS EXCLUSIVE MODE');
my $began = time;
leave($s);
cmp_ok(time - $began, '<', 10, 'a session ends at once behind ACCESS EXCLUSIVE');
$s = session($node);
$s->do('SET effect.stats_flush_interval = 0');
duplicates($s, 'end', 3);
$other->rollback;
is(counted('end', 'duplicates'), $expected, 'those two are lost');
duplicates($s, 'end', 1);
is(counted('end', 'duplicates'), $expected += 3, 'a session that goes on keeps its own until it may write');
leave($s);
is(counted('end', 'duplicates'), $expected += 1, 'all of them');

# A session whose extension was dropped ends without a word.
$dbh->do('CREATE DATABASE counters_dropped');
$s = session($node, db => 'counters_dropped');
$s->do('CREATE EXTENSION effect');
duplicates($s, 'gone', 2);
$s->do('DROP EXTENSION effect');
my $at = -s $node->logfile;
leave($s);
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile, $at), qr/FATAL|ERROR/, 'nor does one that has dropped the extension say a word');

#
# Fast shutdown while the synchronous standby is away.
#
action('shutdown');
$s = session($node);
duplicates($s, 'shutdown', 5);
$node->safe_psql('postgres', q(ALTER SYSTEM SET synchronous_standby_names = 'nobody'));
$node->reload;
wait_until('the setting', sub { value($dbh, 'SHOW synchronous_standby_names') eq 'nobody' });
let_go();
$began = time;
$node->stop('fast');
cmp_ok(time - $began, '<', 20, 'a fast shutdown is not delayed by counters');
$node->append_conf('postgresql.auto.conf', "synchronous_standby_names = ''");
$node->start;
$dbh = session($node);
is(counted('shutdown', 'duplicates'), 5, 'and they are there after it');

#
# SIGKILL: the loss is at most the last interval.
#
action('killed');
$s = session($node);
$s->do('SET effect.stats_flush_interval = 1');
duplicates($s, 'killed', 100);
wait_until('an interval to pass', sub { duplicates($s, 'killed', 1); counted('killed', 'duplicates') >= 100 });
my $written = counted('killed', 'duplicates');
duplicates($s, 'killed', 7);
kill 'KILL', $s->{pg_pid};
wait_until('the killed backend to be gone', sub { !kill 0, $s->{pg_pid} });
let_go();
$dbh = wait_until('the server to be back', sub { session($node) });
cmp_ok(counted('killed', 'duplicates'), '>=', $written, 'a session that was killed has lost its last interval at most');

#
# On a standby they are counted by nobody, and nothing goes wrong.
#
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('counters_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$s = session($standby);
is(value($s, q(SELECT effect.is_current('eight', 1))), 0, 'a fenced answer on a standby');
$at = -s $standby->logfile;
my $pid = $s->{pg_pid};
$s->disconnect;
wait_until('its backend to end', sub { !kill 0, $pid });
unlike(PostgreSQL::Test::Utils::slurp_file($standby->logfile, $at), qr/FATAL|ERROR|PANIC/, 'its session ends quietly');
$standby->stop;

let_go();
$node->stop;
done_testing();
