# Eight sessions, three jobs, every isolation level: claim, renew, steal, release,
# revoke, fenced commits and effects, at random (DESIGN promises 1 to 4; cases 01,
# 18, 27 and 28).
#
# Each session writes down what it was told. Checked at the end: no token was told
# twice and none is missing, no attempt was told `go` twice, no inside effect was
# true twice, and nothing failed but the stale and the retryable. Then 200 single
# races of a fenced commit against a steal, and storms on one expired lease.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep time);
use EffectTest;

seed();
my $sessions = $ENV{SESSIONS} || 8;
my $seconds  = $ENV{SECONDS_EACH} || 12;
my $node = new_node('stress', conf => "fsync = off\n");
my $dir  = $node->basedir;
my $dbh  = session($node);

$dbh->do(q(CREATE TABLE work (job text, token bigint, who text)));

my @jobs   = qw(alpha beta gamma);
my @levels = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');
my %mine;

# A fenced transaction with a pause in it, so that thieves get their chance.
sub fenced_commit
{
	my ($c, $w, $log, $job, $token) = @_;
	my $how = pick('fence', 'where', 'insert');
	$c->do('BEGIN ISOLATION LEVEL ' . pick(@levels));
	$c->do('SELECT count(*) FROM work') if rand() < 0.3;
	if ($how eq 'fence')
	{
		$c->do('SELECT effect.fence(?, ?)', undef, $job, $token);
		$c->do('INSERT INTO work VALUES (?, ?, ?)', undef, $job, $token, $w);
	}
	elsif ($how eq 'where')
	{
		$c->do('INSERT INTO work SELECT $1, $2::bigint, $3 WHERE effect.is_current($1, $2::bigint)', undef, $job, $token, $w);
	}
	else
	{
		$c->do('SELECT effect.fenced_insert($1, $2::bigint, $$work$$, jsonb_build_object($$job$$, $1::text, $$token$$, $2::bigint, $$who$$, $3::text))',
			undef, $job, $token, $w);
	}
	if (rand() < 0.2) { $c->do('SAVEPOINT s'); $c->do('SELECT effect.is_current(?, ?)', undef, $job, $token); $c->do('ROLLBACK TO s') }
	jitter(0.05);
	$c->do('SELECT effect.release_lease(?, ?)', undef, $job, $token) if rand() < 0.15;
	if (rand() < 0.15)
	{
		my $gid = "stress-$w-" . int(rand(1e9));
		$c->do("PREPARE TRANSACTION '$gid'");
		jitter(0.02);
		$c->do("COMMIT PREPARED '$gid'");
	}
	else { $c->do('COMMIT') }
	return;
}

sub one_step
{
	my ($c, $w, $log) = @_;
	my $job   = pick(@jobs);
	my $token = $mine{$job};
	my $dice  = rand();

	if ($dice < 0.30 || !$token)
	{
		my $block = rand() < 0.3;
		$c->do('BEGIN ISOLATION LEVEL ' . pick(@levels)) if $block;
		my $r = row($c, 'SELECT * FROM effect.claim_lease(?, ?, make_interval(secs => ?))', $job, "w$w", 0.01 + rand(0.05));
		if ($block) { rand() < 0.2 ? $c->do('ROLLBACK') && return : $c->do('COMMIT') }
		return if $r->{verdict} ne 'granted';
		$mine{$job} = $r->{fencing_token};
		note_line($log, "granted $job $r->{fencing_token}");
	}
	elsif ($dice < 0.40) { $c->do('SELECT effect.renew_lease(?, ?, make_interval(secs => ?))', undef, $job, $token, 0.05) }
	elsif ($dice < 0.45) { $c->do('SELECT effect.release_lease(?, ?)', undef, $job, $token) }
	elsif ($dice < 0.48) { $c->do('SELECT effect.revoke_lease(?, $$test$$)', undef, $job) }
	elsif ($dice < 0.65)
	{
		my $target = 't' . int(rand(200));
		my $e = row($c, 'SELECT * FROM effect.begin_effect($$pay$$, ?, $${}$$, ?, ?)', $target, $job, $token);
		if ($e->{verdict} eq 'go')
		{
			note_line($log, "sent $target $e->{attempt}");
			jitter(0.01);
			$c->do(pick('SELECT effect.complete_effect(?, ?)', 'SELECT effect.complete_effect(?, ?)', 'SELECT effect.retract_effect(?, ?)'),
				undef, $e->{effect_key}, $token);
		}
	}
	elsif ($dice < 0.75)
	{
		$c->do('BEGIN ISOLATION LEVEL ' . pick(@levels));
		my @targets = map { 'o' . int(rand(400)) } 1 .. 8;
		my $new = $c->selectcol_arrayref('SELECT effect.once($$seen$$, ?::text[])', undef, \@targets);
		$c->do('COMMIT');
		note_line($log, "once $_") for @$new;
	}
	else { fenced_commit($c, $w, $log, $job, $token) }
	return;
}

my $stop = time + $seconds;
my @workers = map { my $w = $_; spawn(sub {
	my $c = session($node, prepare => $w % 2);
	my %errors;
	my $steps = 0;
	while (time < $stop)
	{
		$steps++;
		next if eval { one_step($c, $w, "$dir/log$w"); 1 };
		my $state = $c->state;
		$errors{$state}++;
		note_line("$dir/errors", "$state $@") unless $state =~ /^(LE001|LE003|40001)$/;
		$c->do('ROLLBACK');
	}
	note_line("$dir/steps", join(' ', $steps, map { "$_=$errors{$_}" } sort keys %errors));
}) } 1 .. $sessions;
is(reap(@workers), 0, 'every session came to its end');
note($_) for lines_of("$dir/steps");

my @unexpected = lines_of("$dir/errors");
is("@unexpected", '', 'no error but fenced (LE001), gone (LE003) and retry (40001); above all no deadlock');

# Tokens: unique over all who were told one, and all of them in the run log.
my (%times, %sent, %seen);
for my $line (map { lines_of("$dir/log$_") } 1 .. $sessions)
{
	$times{"$1 $2"}++ if $line =~ /^granted (\S+) (\d+)/;
	$sent{"$1 $2"}++ if $line =~ /^sent (\S+) (\d+)/;
	$seen{$1}++ if $line =~ /^once (\S+)/;
}
my $grants = keys %times;
is(join(' ', grep { $times{$_} > 1 } sort keys %times), '', "$grants grants, no token told to two sessions");
cmp_ok($grants, '>', 50, 'enough of them');
is(join(' ', grep { $sent{$_} > 1 } sort keys %sent), '', keys(%sent) . ' attempts were told go, none of them twice');
is(join(' ', grep { $seen{$_} > 1 } sort keys %seen), '', keys(%seen) . ' inside effects, each true once');
is(value($dbh, q(SELECT count(*) FROM effect.effects WHERE action = 'seen')), scalar(keys %seen), 'as many as the ledger says');
is(value($dbh, q(SELECT count(*) FROM (SELECT job_key, count(*) AS n, max(fencing_token) AS t FROM effect.runs GROUP BY 1) r WHERE r.n <> r.t)), 0,
	'tokens are 1, 2, 3 without a gap or a repeat');

# A row of the old holder is there for the new one's first look, or never.
my $node_checks = 0;
my @late;
{
	my $rounds = $ENV{ROUNDS} || 200;
	my ($old, $new) = (session($node), session($node));
	$old->do('DELETE FROM work');
	for my $round (1 .. $rounds)
	{
		my $job = "round$round";
		my $t = row($old, 'SELECT * FROM effect.claim_lease(?, $$old$$, $$1 millisecond$$)', $job)->{fencing_token};
		wait_expired($new, $job);
		my $level = $levels[ $round % 3 ];
		my $pid = spawn(sub {
			my $c = session($node);
			my $ok = eval {
				$c->do("BEGIN ISOLATION LEVEL $level");
				$c->do('SELECT effect.fence(?, ?)', undef, $job, $t);
				$c->do('INSERT INTO work VALUES (?, ?, $$old$$)', undef, $job, $t);
				jitter(0.02);
				$c->do('COMMIT');
				1;
			};
			note_line("$dir/outcome", "$job " . ($ok ? 'committed' : $c->state));
		});
		jitter(0.03);
		my $r = row($new, 'SELECT * FROM effect.claim_lease(?, $$new$$, $$1 hour$$)', $job);
		my $first = value($new, 'SELECT count(*) FROM work WHERE job = ?', $job);
		waitpid $pid, 0;
		my $last = value($new, 'SELECT count(*) FROM work WHERE job = ?', $job);
		$node_checks++;
		push @late, "$job ($level): $first then $last" if $r->{verdict} eq 'granted' && $first != $last;
	}
	is("@late", '', "$node_checks rounds: no row of the old holder appeared after the new one was granted");
	my %outcome;
	$outcome{ (split ' ', $_)[1] }++ for lines_of("$dir/outcome");
	note(join ', ', map { "$_ $outcome{$_}" } sort keys %outcome);
	cmp_ok($outcome{committed} || 0, '>', 0, 'some of them committed');
	cmp_ok($outcome{LE001} || 0, '>', 0, 'and some were fenced');
}

# A storm on one expired lease: 16 sessions at a barrier, one of them wins.
{
	my $rounds = 12;
	my @bad;
	my $last = 0;
	$dbh->do(q(SELECT effect.claim_lease('storm', 'first', '1 millisecond')));
	for my $round (1 .. $rounds)
	{
		wait_expired($dbh, 'storm');
		my $log = "$dir/storm$round";
		$dbh->do('SELECT pg_advisory_lock(99)');
		my @storm = map { my $w = $_; spawn(sub {
			my $c = session($node);
			$c->do('SELECT pg_advisory_lock_shared(99)');
			my $r = row($c, q(SELECT * FROM effect.claim_lease('storm', ?, '1 hour')), "w$w");
			note_line($log, "$r->{verdict} " . ($r->{fencing_token} || ''));
		}) } 1 .. 16;
		wait_until('all at the barrier', sub {
			value($dbh, q(SELECT count(*) = 16 FROM pg_locks WHERE locktype = 'advisory' AND objid = 99 AND NOT granted)) });
		$dbh->do('SELECT pg_advisory_unlock(99)');
		my $bad = reap(@storm);
		my @granted = map { /^granted (\d+)/ ? $1 : () } lines_of($log);
		push @bad, "round $round: @granted" if @granted != 1 || $granted[0] <= $last || $bad || lines_of($log) != 16;
		$last = $granted[0] || $last;
		$dbh->do(q(SELECT effect.revoke_lease('storm', 'next round')));
		$dbh->do(q(SELECT effect.claim_lease('storm', 'again', '1 millisecond')));
		$last++;
	}
	is("@bad", '', "$rounds storms of 16 on one expired lease: one winner each, tokens rise");
}

$node->stop;
done_testing();
