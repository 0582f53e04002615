# `go` is said only when the record is committed as the statement returns (DESIGN
# promise 5, 4.5; case 02).
#
# In every context in which the statement's end is not the transaction's end the
# verdict is go_after_commit: a block, a function, DO, CALL, a trigger, a simple
# query of several statements, a pipeline. Where it is `go` the row is committed
# and flushed before the answer: another session sees it, and its transaction is
# over.

use strict;
use warnings;

use Test::More;
use PostgreSQL::Test::Utils;
use EffectTest;

my $node = new_node('contexts', conf => "fsync = off\n");
my $dbh  = session($node);
my $n    = 0;

$dbh->do(<<'SQL');
CREATE TABLE verdicts (how text, verdict text);
CREATE TABLE trigger_me (target text, verdict text);
CREATE FUNCTION in_sql(t text) RETURNS text LANGUAGE sql AS
	$$ SELECT verdict::text FROM effect.begin_effect('ctx', t) $$;
CREATE FUNCTION in_plpgsql(t text) RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN RETURN (SELECT verdict FROM effect.begin_effect('ctx', t)); END $$;
CREATE FUNCTION in_caught(t text) RETURNS text LANGUAGE plpgsql AS
	$$ BEGIN RETURN (SELECT verdict FROM effect.begin_effect('ctx', t)); EXCEPTION WHEN others THEN RETURN SQLERRM; END $$;
CREATE PROCEDURE in_procedure(t text, INOUT v text) LANGUAGE plpgsql AS
	$$ BEGIN SELECT verdict INTO v FROM effect.begin_effect('ctx', t); COMMIT; END $$;
CREATE FUNCTION in_trigger() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN NEW.verdict := (SELECT verdict FROM effect.begin_effect('ctx', NEW.target)); RETURN NEW; END $$;
CREATE TRIGGER in_trigger BEFORE INSERT ON trigger_me FOR EACH ROW EXECUTE FUNCTION in_trigger();
SQL

sub target { return 'target-' . ++$n }

# The statement and its expected verdict; `%s` is a fresh target.
sub says
{
	my ($what, $expected, $sql, %opt) = @_;
	my $target = target();
	my $got = $opt{run} ? $opt{run}->($target) : value($opt{dbh} || $dbh, sprintf($sql, "'$target'"));
	is($got, $expected, "$what: $expected");
	return $target;
}

sub psql_says
{
	my ($what, $expected, @commands) = @_;
	my $target = target();
	s/%s/'$target'/g for @commands;
	my ($out, $err);
	IPC::Run::run([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), map { ('-c', $_) } @commands ], '>', \$out, '2>', \$err);
	chomp $out;
	my ($verdict) = $out =~ /\b(go_after_commit|go|reserved|busy|unknown)\b/;
	is($verdict, $expected, "$what: $expected") or diag("$out $err");
	return $target;
}

my $begin = q(SELECT verdict FROM effect.begin_effect('ctx', %s));
my $other = session($node);
sub committed { return value($other, 'SELECT count(*) FROM effect.effects WHERE target = ?', $_[0]) }

# Top level: go, and committed.
is(committed(says('simple query', 'go', $begin)), 1, 'simple query: it is there for others');
says('prepared, extended protocol', 'go', undef, run => sub { value(session($node, prepare => 1), 'SELECT verdict FROM effect.begin_effect($1, $2)', 'ctx', $_[0]) });
says('called in the select list', 'go', q(SELECT (effect.begin_effect('ctx', %s)).verdict));
psql_says('one psql -c', 'go', $begin);
psql_says('two psql -c', 'go', 'SELECT 1', $begin);

# submit_effect has the same rule; claim_effect says reserved anywhere.
my $claimed = target();
is(verdict($dbh, 'SELECT * FROM effect.claim_effect($$ctx$$, ?)', $claimed), 'reserved', 'claim_effect: reserved');
is(verdict($dbh, 'SELECT * FROM effect.submit_effect(' . key_of('ctx', $claimed) . ', 1)'), 'go', 'submit_effect: go');
is_deeply($dbh->selectcol_arrayref(q(SELECT verdict FROM effect.begin_effects('ctx', '{many-1,many-2,many-3}'))), [ 'go', 'go', 'go' ], 'begin_effects: go');
is(committed("many-$_"), 1, "begin_effects: many-$_ is there for others") for 1 .. 3;

# The function forms.
says('SQL function', 'go_after_commit', 'SELECT in_sql(%s)');
says('PL/pgSQL function', 'go_after_commit', 'SELECT in_plpgsql(%s)');
says('function with an exception block', 'go_after_commit', 'SELECT in_caught(%s)');
says('CALL', 'go_after_commit', q(CALL in_procedure(%s, NULL)));
says('trigger', 'go_after_commit', undef, run => sub { value($dbh, 'INSERT INTO trigger_me (target) VALUES (?) RETURNING verdict', $_[0]) });
says('DO', 'go_after_commit', undef, run => sub {
	$dbh->do(qq(DO \$\$ BEGIN INSERT INTO verdicts SELECT 'do', verdict FROM effect.begin_effect('ctx', '$_[0]'); END \$\$));
	value($dbh, q(DELETE FROM verdicts RETURNING verdict)) });
says('dynamic SQL in DO', 'go_after_commit', undef, run => sub {
	$dbh->do(qq(DO \$\$ BEGIN EXECUTE 'INSERT INTO verdicts SELECT ''do'', verdict FROM effect.begin_effect(''ctx'', ''$_[0]'')'; END \$\$));
	value($dbh, q(DELETE FROM verdicts RETURNING verdict)) });

# Blocks.
for my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my $t = says("block at $level", 'go_after_commit', undef, run => sub {
		$dbh->do("BEGIN ISOLATION LEVEL $level");
		my $v = value($dbh, sprintf($begin, "'$_[0]'"));
		is(committed($_[0]), 0, "block at $level: not there for others yet");
		$dbh->do('COMMIT');
		return $v });
	is(committed($t), 1, "block at $level: there after COMMIT");
}
says('savepoint', 'go_after_commit', undef, run => sub {
	$dbh->do('BEGIN'); $dbh->do('SAVEPOINT s');
	my $v = value($dbh, sprintf($begin, "'$_[0]'"));
	$dbh->do('RELEASE s'); $dbh->do('COMMIT');
	return $v });
says('a driver that opens transactions by itself', 'go_after_commit', undef, run => sub {
	my $auto = session($node);
	$auto->{AutoCommit} = 0;
	my $v = value($auto, sprintf($begin, "'$_[0]'"));
	$auto->commit;
	return $v });
says('cursor', 'go_after_commit', undef, run => sub {
	$dbh->do('BEGIN');
	$dbh->do(qq(DECLARE c CURSOR FOR SELECT verdict FROM effect.begin_effect('ctx', '$_[0]')));
	my $v = value($dbh, 'FETCH c');
	$dbh->do('COMMIT');
	return $v });

# Several statements in one simple query are one transaction.
psql_says('a; b in one query, first', 'go_after_commit', "$begin; SELECT 1");
psql_says('a; b in one query, last', 'go_after_commit', "SELECT 1; $begin");
psql_says('COMMIT after it in one query', 'go_after_commit', "BEGIN; $begin; COMMIT");

# Statements that wrap another one end with it: either verdict would be true, if it is go it must be committed.
for my $wrap (
	[ 'COPY', "COPY (SELECT verdict FROM effect.begin_effect('ctx', %s)) TO STDOUT" ],
	[ 'CREATE TABLE AS', "CREATE TEMP TABLE t AS SELECT verdict FROM effect.begin_effect('ctx', %s)", 'TABLE t' ],
	[ 'INSERT … SELECT', "INSERT INTO verdicts SELECT 'insert', verdict FROM effect.begin_effect('ctx', %s) RETURNING verdict" ],
	[ 'EXECUTE', "PREPARE p AS SELECT verdict FROM effect.begin_effect('ctx', %s)", 'EXECUTE p' ],
	[ 'EXPLAIN ANALYZE', "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT verdict FROM effect.begin_effect('ctx', %s)", "SELECT CASE WHEN state = 'submitted' THEN 'go' END FROM effect.effects WHERE target = %s" ])
{
	my ($what, @commands) = @$wrap;
	my $target = target();
	s/%s/'$target'/g for @commands;
	my ($out, $err);
	IPC::Run::run([ 'psql', '-XAtq', '-d', $node->connstr('postgres'), map { ('-c', $_) } @commands ], '>', \$out, '2>', \$err);
	like($out, qr/\b(go|go_after_commit)\b/, "$what: a go verdict") or diag($err);
	is(committed($target), 1, "$what: and committed at its end");
}

# A pipeline is one transaction until its Sync, or until a statement that commits
# by itself. pgbench writes the verdicts down.
sub pipeline
{
	my (@statements) = @_;
	my $script = $node->basedir . '/pipeline.sql';
	open(my $fh, '>', $script) or die $!;
	print $fh "\\startpipeline\n", (map { "$_;\n" } @statements), "\\endpipeline\n";
	close $fh;
	my ($out, $err) = ('', '');
	$dbh->do('TRUNCATE verdicts');
	IPC::Run::run([ 'pgbench', '-n', '-t', '1', '-M', 'extended', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], '>', \$out, '2>', \$err);
	return ({ map { @$_ } @{ $dbh->selectall_arrayref('SELECT how, verdict FROM verdicts') } }, $err);
}
sub begin_in { my ($how) = @_; return "INSERT INTO verdicts SELECT '$how', verdict FROM effect.begin_effect('pipe', '$how')" }

{
	my ($v, $err) = pipeline(q(INSERT INTO verdicts VALUES ('plain', 'x')), begin_in('second'), begin_in('last'));
	is($v->{second}, 'go_after_commit', 'pipeline: after a plain statement, go_after_commit') or diag($err);
	is($v->{last}, 'go_after_commit', 'pipeline: and so the next');

	# It fails later: what was go_after_commit is taken back.
	($v, $err) = pipeline(q(INSERT INTO verdicts VALUES ('plain', 'x')), begin_in('taken back'), 'SELECT 1/0');
	like($err, qr/division by zero/, 'failing pipeline: it fails');
	is_deeply($v, {}, 'failing pipeline: all of it is gone');
	is(committed('taken back'), 0, 'failing pipeline: go_after_commit came to nothing');

	# First in the pipeline it may say go, if it has committed: no failure takes
	# that back. What was said is kept in a sequence, which no rollback resets.
	$dbh->do('CREATE SEQUENCE said_go');
	my $says = q(SELECT CASE verdict WHEN 'go' THEN nextval('said_go') END FROM effect.begin_effect('pipe', '%s'));
	($v, $err) = pipeline(sprintf($says, 'first'), sprintf($says, 'next'), 'SELECT 1/0');
	like($err, qr/division by zero/, 'pipeline that begins with it: it fails');
	is(value($dbh, 'SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM said_go'), committed('first') + committed('next'),
		'pipeline that begins with it: as many committed as were told go');
}

$node->stop;
done_testing();
