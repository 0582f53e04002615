# 64 clients hammer the claim of one live lease: the losers cost no transaction id
# and no WAL, and the holder's heartbeat goes on (DESIGN 8).
#
# Nothing else writes here: autovacuum, its statistics and checkpoints are off, and
# what a loser would write shows twice.  Transaction ids: between the two counts only
# the holder's renewals may take one, so the difference is their number exactly (and
# the one that counts).  WAL: the bytes of every record since then, from the server's
# own pg_waldump, by the transaction that wrote it; a record of a transaction that is
# not a renewal is nobody's but a loser's.
#
# SECONDS_=30 for the long run; the latencies are printed, and only bounded for sanity.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);
use EffectTest;

my $seconds = $ENV{SECONDS_} || 5;
my $clients = 64;
my $node = new_node('hammer', conf => <<'CONF');
max_connections = 100
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 4GB
bgwriter_lru_maxpages = 0
wal_level = minimal
max_wal_senders = 0
CONF
my $dbh  = session($node);
my $dir  = $node->basedir;

$dbh->do(q(SELECT effect.set_job('registered', overlap => 'coalesce', lease_for => '1 hour')));

sub hammered
{
	my ($job, $verdict) = @_;
	is(verdict($dbh, q(SELECT * FROM effect.claim_lease(?, 'holder', '1 hour')), $job), 'granted', "$job: held");
	append_to_file("$dir/$job.sql", "SELECT 1 / (verdict = '$verdict')::int AS ok FROM effect.claim_lease('$job', 'loser', '1 hour');\n");
	# hint bits and pruning of what came before
	$dbh->do('VACUUM');
	$dbh->do('CHECKPOINT');

	my $out = "$dir/$job.out";
	my $from = value($dbh, 'SELECT pg_current_wal_insert_lsn()');
	my $next = value($dbh, 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
	my $pid = spawn(sub {
		open(STDOUT, '>', $out) or die;
		open(STDERR, '>&', \*STDOUT) or die;
		$ENV{PGAPPNAME} = 'pgbench';
		exec 'pgbench', '-n', '-M', 'prepared', '-c', $clients, '-j', 2, '-T', $seconds, '-f', "$dir/$job.sql", $node->connstr('postgres');
	});
	wait_until('all clients to be there', sub { value($dbh, q(SELECT count(*) >= ? FROM pg_stat_activity WHERE application_name = 'pgbench'), $clients) });
	my @took;
	my $renewed = 0;
	while (value($dbh, q(SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'pgbench')))
	{
		my $began = time;
		my $until = value($dbh, 'SELECT effect.renew_lease(?, 1)', $job);
		push @took, (time - $began) * 1000;
		$renewed++ if defined $until;
		sleep 0.005;
	}
	waitpid $pid, 0;
	my $to = value($dbh, 'SELECT pg_current_wal_insert_lsn()');
	my $after = value($dbh, 'SELECT pg_snapshot_xmax(pg_current_snapshot())');
	my $said = slurp_file($out);
	my ($claims) = $said =~ /transactions actually processed: (\d+)/;
	is($?, 0, "$job: every loser was told $verdict") or diag($said);
	cmp_ok($claims || 0, '>', $clients, "$job: $clients clients asked more than once each");
	is($renewed, scalar @took, "$job: every renewal was answered");
	# A session writes what it has counted as it ends, in one transaction of its own.
	is($after - $next, $renewed + $clients, "$job: as many transaction ids as renewals, and one a session for its counters");

	# Every record since, by transaction: those of renewals, and of none.
	$dbh->do('SELECT pg_switch_wal()');
	my $dump = `pg_waldump -p "@{[ $node->data_dir ]}/pg_wal" -s $from -e $to 2>&1`;
	my (%bytes, %rmgr);
	for my $line (split /\n/, $dump)
	{
		next unless $line =~ m{^rmgr: (\S+) +len \(rec/tot\): +\d+/ *(\d+), tx: +(\d+),.*?desc: (\S+)};
		$bytes{$3} += $2;
		$rmgr{"$1 $4"}++ if $3 < $next || $3 >= $after;
	}
	my $strays = 0;
	$strays += $bytes{$_} for grep { $_ < $next || $_ >= $after } keys %bytes;
	my $renewals = grep { $_ >= $next && $_ < $after } keys %bytes;
	is($renewals, $renewed + $clients, "$job: each of these is in the WAL");

	# Pruning the page of the lease row is the only thing a reader may write, and only
	# because the holder has updated it: never more often than that.
	my %prune = map { $_ => delete $rmgr{$_} } grep { /^(Heap2 PRUNE|Standby RUNNING_XACTS|XLOG FPI_FOR_HINT)/ } keys %rmgr;
	is_deeply(\%rmgr, {}, "$job: no record is a loser's own") or diag(explain(\%rmgr));
	cmp_ok(($prune{'Heap2 PRUNE'} || 0), '<=', $renewed, "$job: pages are pruned no more often than the lease is renewed");
	@took = sort { $a <=> $b } @took;
	my ($p50, $p99) = map { $took[ int($#took * $_) ] } 0.50, 0.99;
	note(sprintf '%s: %d claims in %d s by %d clients, %d renewals: p50 %.2f ms, p99 %.2f ms, max %.2f ms; %d bytes of WAL without a transaction (%s)',
		$job, $claims || 0, $seconds, $clients, $renewed, $p50, $p99, $took[-1], $strays, join(', ', map { "$_ $prune{$_}" } sort keys %prune));
	cmp_ok($p99, '<', 1000, "$job: the holder's heartbeat is answered");
	return;
}

hammered('plain', 'held');
hammered('registered', 'coalesced');

$node->stop;
done_testing();
