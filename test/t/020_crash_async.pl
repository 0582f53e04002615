# Immediate stop under synchronous_commit = off: no token twice, and every `go`
# has its evidence (DESIGN promises 2 and 5; case 14).
#
# The server is told not to flush at commit and its WAL writer sleeps, so that a
# plain asynchronous commit is lost nearly every time: a control table proves that
# the crash is a harsh one. Claims and submits raise synchronous_commit for their
# own transaction.

use strict;
use warnings;

use Test::More;
use EffectTest;

my $rounds = $ENV{ROUNDS} || 20;

seed();
my $node = new_node('async', conf => <<'CONF');
wal_writer_delay = 10s
wal_writer_flush_after = 1GB
checkpoint_timeout = 1h
autovacuum = off
CONF
{
	# Everything is asynchronous from here on, as a customer's ALTER DATABASE would make it.
	my $dbh = session($node);
	$dbh->do('CREATE TABLE control (n int)');
	$dbh->do('ALTER DATABASE postgres SET synchronous_commit = off');
	is(value($dbh, q(SELECT count(*) FROM pg_class WHERE relnamespace = 'effect'::regnamespace
		AND relkind IN ('r', 'S') AND relpersistence <> 'p')), 0, 'no relation of effect is unlogged');
}

my (%granted, @twice, @lost_go, @lost_done, $control_lost);
my ($grants, $goes, $last) = (0, 0, 0);

for my $round (1 .. $rounds)
{
	my $log = $node->basedir . "/round$round";
	is(value(session($node), 'SHOW synchronous_commit'), 'off', 'commits are asynchronous') if $round == 1;

	# Each worker writes down what it was answered, as soon as it was.
	my @workers = map { my $w = $_; spawn(sub {
		my $dbh = session($node);
		my $n = 0;
		while (eval
		{
			$n++;
			my $lease = row($dbh, 'SELECT * FROM effect.claim_lease($$shared$$, ?, $$1 hour$$)', "w$w");
			if ($lease->{verdict} eq 'granted')
			{
				note_line($log, "token $lease->{fencing_token}");
				if ($n % 3)
				{
					$dbh->do('SELECT effect.release_lease($$shared$$, ?)', undef, $lease->{fencing_token});
				}
				else
				{
					$dbh->do('SELECT effect.revoke_lease($$shared$$, $$test$$)');
				}
			}
			my $effect = row($dbh, 'SELECT * FROM effect.begin_effect($$pay$$, ?)', "r$round-w$w-$n");
			note_line($log, "go r$round-w$w-$n") if $effect->{verdict} eq 'go';
			$dbh->do('INSERT INTO control VALUES (?)', undef, $round);
			note_line($log, "control");
			1;
		}) { }
	}) } 1 .. 3;

	wait_until('some work', sub { (grep { /^go/ } lines_of($log)) >= 3 && (grep { /^token/ } lines_of($log)) >= 3 });
	jitter(0.06);
	$node->stop('immediate');
	let_go();
	reap(@workers);
	$node->start;

	my $dbh = session($node);
	for my $line (lines_of($log))
	{
		if ($line =~ /^token (\d+)/) { $grants++; push @twice, "$round:$1" if $granted{$1}++ }
		if ($line =~ /^go (\S+)/)
		{
			$goes++;
			push @lost_go, $1 unless value($dbh, q(SELECT state = 'submitted' FROM effect.effects WHERE target = ?), $1);
		}
	}
	my $acknowledged = grep { /^control/ } lines_of($log);
	$control_lost++ if $acknowledged > value($dbh, 'SELECT count(*) FROM control WHERE n = ?', $round);

	# The next token is above all that anyone was ever told.
	my ($highest) = sort { $b <=> $a } keys %granted;
	$dbh->do('SELECT effect.revoke_lease($$shared$$, $$test$$)');
	my $next = row($dbh, q(SELECT * FROM effect.claim_lease('shared', 'check', '1 hour')));
	push @twice, "$round: $next->{fencing_token} after $highest" if $next->{fencing_token} <= $highest;
	$granted{ $next->{fencing_token} }++;
	$dbh->do('SELECT effect.release_lease($$shared$$, ?)', undef, $next->{fencing_token});
}

is("@twice", '', "$rounds crashes, $grants grants, no token twice");
is("@lost_go", '', "$rounds crashes, $goes times go, each with its evidence");
cmp_ok($control_lost || 0, '>', 0, 'the crashes were harsh: plain asynchronous commits were lost in ' . ($control_lost || 0) . " of $rounds");
cmp_ok($grants, '>=', 3 * $rounds, 'enough grants');

$node->stop;
done_testing();
