# sweep costs what is open, not what the ledger holds (DESIGN 4.7, 8; issue 4).
#
# Counted, not timed: the rows and pages of effect.ledger that one call touches,
# with nothing to do, in a ledger of 200,000 and of 2,000,000 effects that are done.
# Then what could hide an abandoned attempt from it: one that lasts, a transaction
# that stays open, a crowd of live ones. SCALE=n takes other numbers of rows.

use strict;
use warnings;

BEGIN { $ENV{TAP_TIMEOUT} ||= 600 }

use Test::More;
use Time::HiRes qw(time);
use EffectTest;

my ($small, $large) = $ENV{SCALE} ? ($ENV{SCALE} / 10, $ENV{SCALE}) : (200_000, 2_000_000);
my $node = new_node('scale', conf => <<'CONF');
fsync = off
full_page_writes = off
synchronous_commit = off
wal_level = minimal
max_wal_senders = 0
max_wal_size = 4GB
checkpoint_timeout = 1h
shared_buffers = 128MB
autovacuum = off
CONF
my $dbh = session($node);
$dbh->do(q(SELECT effect.set_action('long', timeout => '1 day')));
$dbh->do(q(SELECT effect.set_action('pay', timeout => '1 millisecond', keep_body_for => '10 years', keep_key_for => '20 years')));

# Effects that are done, a millisecond apart, the newest ten minutes old.
my $rows = 0;
sub load_to
{
	my ($n) = @_;
	my $began = time;
	$dbh->do(<<"SQL");
INSERT INTO effect.ledger (effect_key, action, target, inputs, fencing_token, attempt, state, held, ending, response, created_at, submitted_at, updated_at)
SELECT lpad(to_hex(g), 32, '0')::uuid, 'pay', 'order ' || g, '{"amount": 10}', 1, 1, 'done', false, 'completed', '{"ok": true}', at, at, at
  FROM (SELECT g, now() - interval '10 minutes' - ($large - g) * interval '1 millisecond' AS at FROM generate_series($rows + 1, $n) AS g) AS s
SQL
	$dbh->do('VACUUM ANALYZE effect.ledger');
	$rows = $n;
	note sprintf '%d rows, loaded in %.1f s', $n, time - $began;
	return;
}

# What one sweep touches: rows and pages of the ledger, by the server's own count.
sub counters
{
	$dbh->do('SELECT pg_stat_force_next_flush()');
	return row($dbh, q(SELECT seq_scan, seq_tup_read + idx_tup_fetch AS rows, heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit AS pages
		FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid) WHERE relid = 'effect.ledger'::regclass));
}

sub sweep
{
	my $before = counters();
	my $began  = time;
	my $swept  = row($dbh, 'SELECT * FROM effect.sweep()');
	$swept->{ms} = 1000 * (time - $began);
	my $after = counters();
	$swept->{$_} = $after->{$_} - $before->{$_} for keys %$after;
	return $swept;
}

sub mark { return value($dbh, 'SELECT swept_to FROM effect.sweep_state') }

# Sweep until it has been everywhere; how much the greediest call took.
sub catch_up
{
	my ($what) = @_;
	my ($calls, $rows, $at) = (0, 0, '');
	while ($at ne mark() || !$calls)
	{
		$at = mark();
		my $swept = sweep();
		$rows = $swept->{rows} if $swept->{rows} > $rows;
		last if ++$calls > 2000 || $swept->{rows} < 1000;
	}
	note "$what: caught up in $calls calls, at most $rows rows each";
	cmp_ok($rows, '<=', 450_000, "$what: no call takes more than its bound");
	return;
}

my %idle;
for my $n ($small, $large)
{
	load_to($n);
	catch_up("$n rows");
	my @times = sort { $a <=> $b } map { $idle{$n} = sweep(); $idle{$n}{ms} } 1 .. 21;
	note sprintf '%d rows: an idle sweep touches %d rows and %d pages of the ledger; %.2f ms (median), %.2f ms (slowest)',
		$n, $idle{$n}{rows}, $idle{$n}{pages}, $times[10], $times[-1];
	is(join(' ', map { $idle{$n}{$_} } qw(runs_abandoned effects_unknown found_happened found_absent still_unclear bodies_pruned keys_pruned)), '0 0 0 0 0 0 0', "$n rows: nothing to do");
	is($idle{$n}{seq_scan}, 0, "$n rows: the ledger is not scanned");
	cmp_ok($idle{$n}{rows}, '<=', 100, "$n rows: a few rows are touched");
	cmp_ok($idle{$n}{pages}, '<=', 200, "$n rows: and a few pages");
}
cmp_ok($idle{$large}{rows}, '<=', $idle{$small}{rows} + 10, 'ten times the rows, no more of them touched');
cmp_ok($idle{$large}{pages}, '<=', $idle{$small}{pages} + 20, 'nor pages, but for a deeper tree');

# It is still found, in a ledger of that size, at the next call.
$dbh->do(q(SELECT effect.begin_effect('pay', 'abandoned')));
wait_until('its time to be up', sub { value($dbh, q(SELECT count(*) FROM effect.ledger WHERE target = 'abandoned' AND busy_until < clock_timestamp())) });
is(sweep()->{effects_unknown}, 1, 'an abandoned attempt is found by the next sweep');

# ---------------------------------------------------------------------------
# What could hide an abandoned attempt.
# ---------------------------------------------------------------------------

# More than a stretch of done effects between what holds the mark and what is lost.
my $next = $rows;
sub crowd
{
	my ($n) = @_;
	$dbh->do(<<'SQL', undef, $next + 1, $next + $n);
INSERT INTO effect.ledger (effect_key, action, target, inputs, fencing_token, attempt, state, held, ending, created_at, submitted_at, updated_at)
SELECT lpad(to_hex(g), 32, '0')::uuid, 'pay', 'order ' || g, '{}', 1, 1, 'done', false, 'completed', clock_timestamp(), clock_timestamp(), clock_timestamp()
  FROM generate_series(?::bigint, ?::bigint) AS g
SQL
	$next += $n;
	return;
}

sub is_found
{
	my ($target, $calls, $what) = @_;
	$dbh->do(q(SELECT effect.begin_effect('pay', ?)), undef, $target);
	wait_until('its time to be up', sub { value($dbh, q(SELECT count(*) FROM effect.ledger WHERE target = ? AND busy_until < clock_timestamp()), $target) });
	my $found = 0;
	for (1 .. $calls) { sweep(); $found ||= value($dbh, q(SELECT count(*) FROM effect.ledger WHERE target = ? AND state = 'unknown'), $target); last if $found }
	is($found, 1, $what);
	return;
}

# Age everything, so that the two minutes' grace is over.
sub age
{
	$dbh->do($_) for 'SET session_replication_role = replica',
		q(UPDATE effect.ledger SET created_at = created_at - interval '5 minutes' WHERE created_at > now() - interval '5 minutes'),
		'RESET session_replication_role';
	return;
}

$dbh->do(q(SELECT effect.begin_effect('long', 'lasts a day')));
crowd(30_000);
is_found('behind a long one', 3, 'an attempt that may last a day hides nothing behind it');
age();
is_found('behind a long one, later', 3, 'nor later');
is(value($dbh, q(SELECT state FROM effect.effects WHERE target = 'lasts a day')), 'submitted', 'and is left alone');
catch_up('behind a long one');

# A crowd of live attempts: a batch under a lease that has hours to go.
$dbh->do(q(SELECT effect.claim_lease('batch', 'w', '5 hours')));
$dbh->do(q(SELECT count(*) FROM effect.begin_effects('pay', (SELECT array_agg('batch ' || g) FROM generate_series(1, 2500) AS g), NULL, 'batch', 1)));
is_found('behind a batch', 5, 'nor do 2,500 live attempts of one run');
age();
is_found('behind a batch, later', 5, 'nor later');
is(value($dbh, q(SELECT count(*) FROM effect.ledger WHERE job_key = 'batch' AND state = 'submitted')), 2500, 'which are left alone');

# A transaction that reads for hours, pg_dump for one.
{
	my $reader = session($node);
	$reader->do('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY');
	$reader->do('SELECT count(*) FROM effect.cluster');
	crowd(30_000);
	is_found('under a dump', 3, 'nor does a transaction that only reads');
	$reader->rollback;
}

# A transaction that writes for hours.
{
	my $writer = session($node);
	$writer->begin_work;
	$writer->do('SELECT pg_current_xact_id()');
	crowd(30_000);
	is_found('under a load', 3, 'nor one that writes');
	$writer->rollback;
}

# Faster than a stretch a sweep: it keeps up with what a busy minute brings.
crowd(100_000);
is_found('in a busy minute', 3, 'nor 100,000 effects between two sweeps');

$node->stop('immediate');
let_go();
done_testing();
