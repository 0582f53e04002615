# A far side that is really far: a second cluster, reached by the resolver through
# dblink and through postgres_fdw (DESIGN 4.7; issue 2).
#
# Workers are killed by SIGKILL after `go`, before and after they acted over there.
# sweep looks and ends each as it was. What goes wrong over there, or on the way, is
# cannot_tell and journalled, and stops nobody else's resolver; only our own cancel
# and our own timeout pass through. Then pollers from outside, one of them killed.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(sleep);
use EffectTest;

my $far  = new_node('far', bare => 1, conf => "fsync = off\n");
my $near = new_node('near', conf => "fsync = off\n");
my $dir  = $near->basedir;
my $there = session($far);
my $dbh   = session($near);

$there->do('CREATE TABLE payment (idempotency_key uuid PRIMARY KEY, target text, ref text)');

$dbh->do("CREATE EXTENSION $_") for qw(dblink postgres_fdw);
$dbh->do(sprintf q(CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '%s', port '%s', dbname 'postgres')), $far->host, $far->port);
$dbh->do(sprintf q(CREATE USER MAPPING FOR CURRENT_USER SERVER far OPTIONS (user '%s')), scalar getpwuid($<));
$dbh->do(q(CREATE FOREIGN TABLE far_payment (idempotency_key uuid, target text, ref text) SERVER far OPTIONS (table_name 'payment')));
$dbh->do(sprintf <<'SQL', $far->host, $far->port);
CREATE FUNCTION look_dblink(k uuid, t text, i jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb)
LANGUAGE plpgsql AS $$
DECLARE
	found_ref text;
BEGIN
	SELECT r.ref INTO found_ref
	  FROM public.dblink('host=%s port=%s dbname=postgres',
		format('SELECT ref FROM payment WHERE idempotency_key = %%L', k)) AS r(ref text);
	finding := CASE WHEN FOUND THEN 'happened' ELSE 'did_not_happen' END;
	response := to_jsonb(found_ref);
	evidence := jsonb_build_object('looked', 'dblink');
END $$
SQL

# An ordinary role registers the other one, and it is that role which looks.
$dbh->do('CREATE ROLE clerk LOGIN');
$dbh->do(q(SELECT effect.grant_worker('clerk')));
$dbh->do('GRANT CREATE ON SCHEMA public TO clerk');
$dbh->do('GRANT SELECT ON far_payment TO clerk');
$dbh->do(sprintf q(CREATE USER MAPPING FOR clerk SERVER far OPTIONS (user '%s', password_required 'false')), scalar getpwuid($<));
my $clerk = session($near, user => 'clerk');
$clerk->do(<<'SQL');
CREATE FUNCTION look_fdw(k uuid, t text, i jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb)
LANGUAGE plpgsql AS $$
BEGIN
	SELECT pg_catalog.to_jsonb(p.ref) INTO response FROM public.far_payment p WHERE p.idempotency_key = k;
	finding := CASE WHEN FOUND THEN 'happened' ELSE 'did_not_happen' END;
	evidence := pg_catalog.jsonb_build_object('looked', current_user);
END $$
SQL
$dbh->do(q(SELECT effect.set_action('charge', settle => '1 millisecond', timeout => '1 millisecond', resolver => 'public.look_dblink')));
$clerk->do(q(SELECT effect.set_action('order', settle => '1 millisecond', timeout => '1 millisecond', resolver => 'public.look_fdw')));
$dbh->do(q(SELECT effect.set_action('mail', settle => '1 millisecond', timeout => '1 millisecond')));

# The far side acts once a key, as a real one does.
sub act
{
	my ($key, $target) = @_;
	session($far)->do('INSERT INTO payment VALUES (?, ?, ?) ON CONFLICT DO NOTHING', undef, $key, $target, "ref of $target");
	return;
}

sub work
{
	my ($action, $target, $point) = @_;
	my $worker = session($near);
	my $at     = sub { return if $_[0] ne $point; note_line("$dir/landed", "$target: $point"); kill 'KILL', $$; sleep 10 };
	my $effect = row($worker, 'SELECT * FROM effect.begin_effect(?, ?)', $action, $target);
	return $effect->{verdict} if $effect->{verdict} ne 'go';
	$at->('before the act');
	act($effect->{effect_key}, $target);
	$at->('after the act');
	$worker->do('SELECT effect.complete_effect(?, ?, $$"done"$$)', undef, $effect->{effect_key}, $effect->{fencing_token});
	return 'done';
}

sub killed
{
	my ($action, $target, $point) = @_;
	my $pid = spawn(sub { work($action, $target, $point) });
	waitpid $pid, 0;
	ok(($? & 127) == 9 && (grep { $_ eq "$target: $point" } lines_of("$dir/landed")), "$action: killed $point");
	wait_until('its time to be up', sub { value($dbh, 'SELECT state = $$unknown$$ FROM effect.effects WHERE target = ?', $target) });
	return;
}

sub sweep { return row($_[0] || $dbh, 'SELECT * FROM effect.sweep()') }
sub state { return value($dbh, 'SELECT state || $$ $$ || coalesce(ending, $$-$$) || $$ $$ || coalesce(response #>> $${}$$, $$-$$) FROM effect.effects WHERE target = ?', $_[0]) }
sub checks { return value($dbh, 'SELECT u.checks FROM effect.unknown u JOIN effect.ledger l USING (effect_key) WHERE l.target = ?', $_[0]) }
sub due_now { $dbh->do('UPDATE effect.unknown SET next_check = clock_timestamp()'); return }

# ---------------------------------------------------------------------------
# The main story.
# ---------------------------------------------------------------------------

for my $action (qw(charge order))
{
	killed($action, "$action acted", 'after the act');
	killed($action, "$action lost", 'before the act');
}
{
	my $first = sweep();
	is($first->{effects_unknown}, 4, 'sweep: writes down that four are unknown');
	my $second = sweep();
	is("$second->{found_happened} $second->{found_absent} $second->{still_unclear}", '2 2 0', 'sweep: asks the other cluster about each');
	for my $action (qw(charge order))
	{
		is(state("$action acted"), "done resolved ref of $action acted", "$action: what was done over there is done, with its reference");
		is(state("$action lost"), 'claimed - -', "$action: what was not done is free for one more attempt");
		is(work($action, "$action acted", 'nowhere'), 'done', "$action: the first is not sent again");
		is(work($action, "$action lost", 'nowhere'), 'done', "$action: the second is");
		is(state("$action lost"), 'done completed done', "$action: and completed");
	}
	is(value($there, 'SELECT count(*) || $$ $$ || count(DISTINCT target) FROM payment'), '4 4', 'the far side acted once on each');
	is_deeply($dbh->selectcol_arrayref(q(SELECT DISTINCT evidence->>'looked' FROM effect.journal WHERE event = 'finding' ORDER BY 1)),
		[ 'clerk', 'dblink' ], 'each resolver looked as the role that registered it');
}

# ---------------------------------------------------------------------------
# Not to be seen: cannot_tell, and nobody else is held up.
# ---------------------------------------------------------------------------

# The far side stops the question itself (its own statement_timeout: 57014).
{
	killed('charge', 'charge timeout', 'after the act');
	killed('order', 'order timeout', 'after the act');
	sweep();
	$there->do(q(ALTER DATABASE postgres SET statement_timeout = '100ms'));
	my $lock = session($far);
	$lock->do('SET statement_timeout = 0');
	$lock->begin_work;
	$lock->do('LOCK TABLE payment');
	my $swept = eval { sweep(session($near)) };
	ok($swept, "far timeout: it is the far side's, not ours: sweep goes on") or diag $@;
	is($swept->{still_unclear}, 2, 'far timeout: neither can be told') if $swept;
	is(checks('charge timeout') . ' ' . checks('order timeout'), '1 1', 'far timeout: each look is counted');
	like(value($dbh, q(SELECT string_agg(detail, ' ') FROM effect.journal WHERE event = 'resolver_failed')), qr/SQLSTATE 57014/, 'far timeout: the journal says why');
	is(value($dbh, q(SELECT count(*) FROM effect.unknown WHERE next_check > clock_timestamp() + interval '30 seconds')), 2, 'far timeout: the next look is put off');
	$lock->rollback;
	$there->do(q(ALTER DATABASE postgres RESET statement_timeout));
}

# The far side's administrator ends the connection that asks (57P01).
{
	my $lock = session($far);
	$lock->begin_work;
	$lock->do('LOCK TABLE payment');
	my $cut_off = sub {
		my ($action) = @_;
		due_now();
		$dbh->do(q(UPDATE effect.unknown u SET next_check = 'infinity' FROM effect.ledger l WHERE l.effect_key = u.effect_key AND l.action <> ?), undef, $action);
		my (undef, $answer) = background($near, 'SELECT still_unclear FROM effect.sweep()');
		wait_until('the question to wait', sub { value($there, q(SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%payment%' AND pid <> pg_backend_pid())) });
		return $answer->();
	};
	is($cut_off->('charge'), 1, 'far restart: the connection is gone, which tells nothing: sweep goes on');
	is(checks('charge timeout'), 2, 'far restart: the look is counted');

	# postgres_fdw refuses the commit of a transaction that has lost its remote part:
	# nothing of that sweep is kept, and nothing of it was needed.
	like($cut_off->('order'), qr/^(1|failed 08)/, 'far restart: what postgres_fdw lost is not committed');
	is(state('order timeout'), 'unknown - -', 'far restart: and nothing else was said of it');
	$lock->rollback;
}

# Our own cancel and our own timeout are not the resolver's failure.
{
	my $looks = checks('order timeout');
	due_now();
	$dbh->do(q(UPDATE effect.unknown u SET next_check = 'infinity' FROM effect.ledger l WHERE l.effect_key = u.effect_key AND l.action = 'charge'));
	my $lock = session($far);
	$lock->begin_work;
	$lock->do('LOCK TABLE payment');
	my ($pid, $answer) = background($near, 'SELECT still_unclear FROM effect.sweep()');
	wait_until('the question to wait', sub { value($there, q(SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%payment%' AND pid <> pg_backend_pid())) });
	$dbh->do('SELECT pg_cancel_backend(?)', undef, $pid);
	is($answer->(), 'failed 57014', 'cancelled here: passes through');
	(undef, $answer) = background($near, q(SET statement_timeout = '300ms'), 'SELECT still_unclear FROM effect.sweep()');
	is($answer->(), 'failed 57014', 'statement_timeout here: passes through');
	is(checks('order timeout'), $looks, 'and counts as no look');
	$lock->rollback;
	due_now();
	my $swept = sweep(session($near));
	is($swept->{found_happened}, 2, 'when it can be seen again, both are found to have happened');
	is(state($_), "done resolved ref of $_", "$_: done") for 'charge timeout', 'order timeout';
}

# The far side is down: one action's resolver fails, another's works.
{
	$dbh->do(q(CREATE FUNCTION look_here(k uuid, t text, i jsonb, OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb)
		LANGUAGE sql AS $$ SELECT 'happened'::effect.finding, NULL::jsonb, '"here"'::jsonb $$));
	$dbh->do(q(SELECT effect.set_action('near', settle => '1 millisecond', timeout => '1 millisecond', resolver => 'public.look_here')));
	killed('charge', 'charge down', 'after the act');
	killed('near', 'near', 'after the act');
	sweep();
	$there->disconnect;
	$far->stop;
	my $swept = sweep(session($near));
	is("$swept->{found_happened} $swept->{still_unclear}", '1 1', 'far side down: cannot_tell, and the other resolver is asked all the same');
	is(state('charge down'), 'unknown - -', 'far side down: still unknown');
	is(work('charge', 'charge down', 'nowhere'), 'unknown', 'far side down: nobody may send it');
	$far->start;
	$there = session($far);
	is(sweep(session($near))->{still_unclear}, 0, 'far side back: not asked again before its time');
	due_now();
	is(sweep(session($near))->{found_happened}, 1, 'far side back: and then it is found');
}

# Nothing is asked before `settle` has passed: the request may still arrive.
{
	$dbh->do(q(SELECT effect.set_action('charge', settle => '1 hour')));
	killed('charge', 'charge fresh', 'before the act');
	sweep();
	my $swept = sweep();
	is("$swept->{found_happened} $swept->{found_absent} $swept->{still_unclear}", '0 0 0', 'settle: not asked yet');
	is(value($dbh, q(SELECT count(*) FROM effect.next_unknown('early', 'charge'))), 0, 'settle: nor offered to pollers');
	$dbh->do(q(SELECT effect.set_action('charge', settle => '1 millisecond')));
	is(sweep()->{found_absent}, 1, 'settle: asked when it has passed');
}

# ---------------------------------------------------------------------------
# Pollers outside.
# ---------------------------------------------------------------------------

sub poll
{
	my ($owner, $lease_for, $point) = @_;
	my $poller = session($near);
	while (my $e = row($poller, 'SELECT * FROM effect.next_unknown(?, $$mail$$, ?)', $owner, $lease_for))
	{
		note_line("$dir/polled", "$owner $e->{target}");
		kill 'KILL', $$ if $point eq 'with it';
		my $ref = value(session($far), 'SELECT ref FROM payment WHERE idempotency_key = ?', $e->{effect_key});
		$poller->do('SELECT effect.resolve_unknown(?, ?, ?, NULL, to_jsonb(?::text))', undef, $e->{effect_key},
			defined $ref ? 'happened' : 'did_not_happen', $e->{attempt}, $ref);
		note_line("$dir/ended", $e->{target});
	}
	return;
}

{
	killed('mail', "mail $_", $_ % 2 ? 'after the act' : 'before the act') for 1 .. 6;
	sweep();
	my $pid = spawn(sub { poll('dies', '200 milliseconds', 'with it') });
	waitpid $pid, 0;
	is($? & 127, 9, 'poller: one is killed while it has an effect');
	my ($dead) = map { s/^dies //r } grep { /^dies / } lines_of("$dir/polled");
	is(state($dead), 'unknown - -', "poller: \"$dead\" is still unknown");
	wait_until('it to be handed on', sub { value($dbh, q(SELECT next_check < clock_timestamp() FROM effect.unknown WHERE checked_by = 'dies')) });
	is(reap(map { my $n = $_; spawn(sub { poll("p$n", '1 minute', 'nowhere') }) } 1 .. 3), 0, 'poller: three more take over');
	my %ended;
	$ended{$_}++ for lines_of("$dir/ended");
	is_deeply(\%ended, { map { ("mail $_" => 1) } 1 .. 6 }, 'poller: each effect was looked for once, the dead one\'s too');
	is(state("mail $_"), $_ % 2 ? "done resolved ref of mail $_" : 'claimed - -', "mail $_: as the far side says") for 1 .. 6;
}

$_->disconnect for $dbh, $clerk, $there;
$near->stop;
$far->stop;
done_testing();
