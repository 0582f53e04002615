# READ ONLY transactions and standbys: 25006, before anything is locked (DESIGN 5).
#
# Every function that writes is called, so that one added later without the check
# is noticed; the views and the functions that only read still answer.

use strict;
use warnings;

use Test::More;
use EffectTest;

my $node = new_node('readonly', init => { allows_streaming => 1 }, conf => "max_wal_senders = 3\n");
my $dbh  = session($node);
$dbh->do(q(CREATE TABLE work (who text, token bigint)));
$dbh->do(q(CREATE TABLE fenced_work (who text)));
$dbh->do(q(SELECT effect.require_fence('fenced_work')));
$dbh->do(q(SELECT effect.claim_lease('j', 'holder', '1 hour')));
$dbh->do(q(SELECT effect.set_job('registered', every => '1 hour', overlap => 'coalesce', lease_for => '1 hour')));
$dbh->do(q(SELECT effect.begin_effect('pay', 'open', '{}', 'j', 1)));
$dbh->do(q(SELECT effect.claim_effect('pay', 'claimed', '{}', 'j', 1)));
$dbh->do(q(SELECT effect.begin_effect('pay', 'unknown', '{}', 'j', 1)));
$dbh->do('SELECT effect.mark_unknown(' . key_of('pay', 'unknown') . q{, 1, 'test')});
$dbh->do(q(SELECT effect.begin_effect('pay', 'done', '{}', 'j', 1)));
$dbh->do('SELECT effect.complete_effect(' . key_of('pay', 'done') . q{, 1, '"ok"')});

my $open = key_of('pay', 'open');
my %writes = (
	claim_lease      => q(SELECT effect.claim_lease('free', 'x', '1 hour')),
	claim_any        => q(SELECT effect.claim_any('{free,other}', 'x', '1 hour')),
	renew_lease      => q(SELECT effect.renew_lease('j', 1)),
	release_lease    => q(SELECT effect.release_lease('j', 1)),
	revoke_lease     => q(SELECT effect.revoke_lease('j', 'test')),
	fenced_insert    => q(SELECT effect.fenced_insert('j', 1, 'work', '{"who": "x"}')),
	require_fence    => q(SELECT effect.require_fence('work')),
	drop_fence       => q(SELECT effect.drop_fence('fenced_work')),
	keep_token_monotonic => q(SELECT effect.keep_token_monotonic('work', 'token')),
	claim_effect     => q(SELECT effect.claim_effect('pay', 'new')),
	begin_effect     => q(SELECT effect.begin_effect('pay', 'new')),
	begin_effects    => q(SELECT effect.begin_effects('pay', '{new,newer}')),
	submit_effect    => 'SELECT effect.submit_effect(' . key_of('pay', 'claimed') . ', 1)',
	complete_effect  => "SELECT effect.complete_effect($open, 1)",
	complete_effects => "SELECT effect.complete_effects(ARRAY[$open], 1)",
	retract_effect   => "SELECT effect.retract_effect($open, 1)",
	mark_unknown     => "SELECT effect.mark_unknown($open, 1, 'test')",
	close_effect     => 'SELECT effect.close_effect(' . key_of('pay', 'claimed') . q{, 'test')},
	reopen_effect    => 'SELECT effect.reopen_effect(' . key_of('pay', 'done') . q{, 'test')},
	apply_effect     => q(SELECT effect.apply_effect('credit', 'new')),
	once             => q(SELECT effect.once('seen', 'new')),
	once_array       => q(SELECT effect.once('seen', '{new,newer}'::text[])),
	resolve_unknown  => 'SELECT effect.resolve_unknown(' . key_of('pay', 'unknown') . q{, 'happened')},
	bump_epochs      => q(SELECT effect.bump_epochs()),
	set_action       => q(SELECT effect.set_action('pay', on_unknown => 'check')),
	approve          => "SELECT effect.approve($open, 'ann')",
	revoke_approval  => "SELECT effect.revoke_approval($open, 'ann')",
	refuse_approval  => 'SELECT effect.refuse_approval(' . key_of('pay', 'claimed') . q{, 'ann', 'test')},
	next_unknown     => q(SELECT * FROM effect.next_unknown('poller')),
	sweep            => q(SELECT * FROM effect.sweep()),
	quarantine       => q(SELECT effect.quarantine('test')),
	adopt_cluster    => q(SELECT effect.adopt_cluster()),
	set_job          => q(SELECT effect.set_job('new', overlap => 'coalesce', lease_for => '1 hour')),
	drop_job         => q(SELECT effect.drop_job('registered')),
	save_checkpoint  => q(SELECT effect.save_checkpoint('j', 1, '{"at": 1}')),
);
my %reads = (
	leases         => q(SELECT owner FROM effect.leases),
	runs           => q(SELECT outcome FROM effect.runs),
	effects        => q(SELECT count(*) FROM effect.effects),
	journal        => q(SELECT count(*) FROM effect.journal),
	explain_effect => q(SELECT (effect.explain_effect('pay', 'done')).verdict),
	explain_new    => q(SELECT (effect.explain_effect('pay', 'new')).verdict),
	effect_key     => q(SELECT effect.effect_key('pay', 'x', effect.input_digest('{}'))),
	fence_gaps     => q(SELECT count(*) FROM effect.fence_gaps()),
	firing_of      => q(SELECT effect.firing_of('registered')),
	get_checkpoint => q(SELECT effect.get_checkpoint('j')),
);

# Nothing was forgotten: every VOLATILE function that SQL can call stands above, or here.
my %neither = map { $_ => 1 } qw(fence is_current check_fence check_token_monotonic);
my $volatile = $dbh->selectcol_arrayref(q(
	SELECT DISTINCT proname FROM pg_proc
	 WHERE pronamespace = 'effect'::regnamespace AND provolatile = 'v' AND prokind = 'f'
	   AND prorettype <> 'trigger'::regtype AND proname !~ '^grant_'));
my @unlisted = grep { !$writes{$_} && !$neither{$_} && !$reads{$_} } @$volatile;
is("@unlisted", '', 'every function that writes is in the list');

$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('hot');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));

sub refused
{
	my ($dbh, $where, $begin) = @_;
	for my $name (sort keys %writes)
	{
		$dbh->do($begin) if $begin;
		is(sqlstate_of($dbh, $writes{$name}), '25006', "$where: $name");
		$dbh->do('ROLLBACK') if $begin;
	}
	for my $name (sort keys %reads)
	{
		$dbh->do($begin) if $begin;
		is(sqlstate_of($dbh, $reads{$name}), '', "$where: $name is readable");
		$dbh->do('ROLLBACK') if $begin;
	}
}

refused($dbh, 'READ ONLY', 'BEGIN READ ONLY');
refused($dbh, 'SERIALIZABLE, READ ONLY, DEFERRABLE', 'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE');
my $hot = session($standby);
refused($hot, 'standby', undef);

# A stale token is stale wherever it is asked about, a good one never says more than that.
for my $case ([ $dbh, 'BEGIN READ ONLY', 'READ ONLY' ], [ $hot, 'BEGIN', 'standby' ])
{
	my ($s, $begin, $where) = @$case;
	$s->do($begin);
	is(sqlstate_of($s, q(SELECT effect.fence('j', 1))), '25006', "$where: fence");
	$s->do('ROLLBACK');
}

# Nothing happened in all that.
is(value($dbh, 'SELECT count(*) FROM effect.leases'), 1, 'no lease more');
is(value($dbh, 'SELECT count(*) FROM effect.effects'), 4, 'no effect more');
is(value($dbh, q(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory')), 0, 'no lock left');
ok(value($dbh, q(SELECT effect.renew_lease('j', 1))), 'the holder goes on');

$standby->stop;
$node->stop;
done_testing();
