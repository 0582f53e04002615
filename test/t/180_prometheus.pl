# Prometheus for real (DESIGN 4.9; issue 5): the numbers come through the exporter
# of Debian, under good names, and are those of effect.metrics().
#
# prometheus-postgres-exporter asks a throw-away cluster as a role that has the
# monitor grant and nothing else; prometheus scrapes it each second, with the rules
# of monitoring/. What it says is read back over its HTTP API. Then every expression
# of the dashboard is asked, and every name in dashboard and rules must exist.
#
# NO_PROMETHEUS=1 does without.

use strict;
use warnings;

use File::Basename;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use Test::More;
use EffectTest;
use PostgreSQL::Test::Utils;

plan skip_all => 'NO_PROMETHEUS is set' if $ENV{NO_PROMETHEUS};
my %program;
for my $name (qw(prometheus promtool prometheus-postgres-exporter))
{
	($program{$name}) = grep { -x } map { "$_/$name" } split(/:/, $ENV{PATH}), '/usr/bin';
	plan skip_all => "$name is not installed" unless $program{$name};
}

# What is started ends with this file, also if it dies, is interrupted or out of
# time (exit, since wait_until would catch a die), and, for setpriv, if it is killed.
my @started;
$SIG{$_} = sub { note("stopped by SIG$_[0]"); exit 1 } for qw(ALRM INT TERM HUP);
sub stop_all { for (reverse splice @started) { $_->kill_kill(grace => 10) } return }
END { my $status = $?; stop_all(); $? = $status }

my $root = dirname(__FILE__) . '/../../monitoring';
my $node = new_node('prometheus', conf => "fsync = off\n");
my $dir  = $node->basedir;
my %port = map { $_ => PostgreSQL::Test::Cluster::get_free_port() } qw(exporter prometheus);
my $boss = session($node, utf8 => 1);

sub start
{
	my ($log, $name, @args) = @_;
	my $nothing = '';
	push @started, IPC::Run::start([ qw(setpriv --pdeathsig TERM), $program{$name}, @args ],
		'<', \$nothing, '>', "$dir/$log", '2>&1');
	return;
}

my $http = HTTP::Tiny->new(timeout => 10);
sub fetch
{
	my ($which, $path) = @_;
	my $r = $http->get("http://127.0.0.1:$port{$which}$path");
	return $r->{success} ? $r->{content} : undef;
}

# What the API answers; undef if it refuses the question.
sub ask
{
	my ($what, %arg) = @_;
	my $r = $http->get("http://127.0.0.1:$port{prometheus}/api/v1/$what" . (%arg ? '?' . $http->www_form_urlencode(\%arg) : ''));
	return undef unless $r->{content} =~ /^\{/;
	my $answer = decode_json($r->{content});
	return $answer->{status} eq 'success' ? $answer->{data} : undef;
}

sub write_file { my ($name, $text) = @_; open(my $fh, '>', "$dir/$name") or die $!; print $fh $text; close $fh; return "$dir/$name" }

# ---------------------------------------------------------------------------
# The rules, by promtool.
# ---------------------------------------------------------------------------

sub promtool_likes
{
	my ($what, @args) = @_;
	my ($out, $in) = ('', ref $args[-1] ? ${ pop @args } : '');
	ok(IPC::Run::run([ $program{promtool}, @args ], '<', \$in, '>', \$out, '2>&1'), $what) or diag($out);
	return;
}

my $rules = slurp_file("$root/alerts.yaml");
my $tests = slurp_file("$root/alerts_test.yaml");
promtool_likes('promtool finds the rules good', qw(check rules), "$root/alerts.yaml");
promtool_likes('and they fire and do not fire as their tests say', qw(test rules), "$root/alerts_test.yaml");
for my $alert ($rules =~ /- alert: (\w+)/g)
{
	my @cases = $tests =~ /alertname: $alert\b,?\s+exp_alerts:\s*(\[\]|\n)/g;
	ok(scalar(grep({ $_ eq '[]' } @cases)) && scalar(grep { $_ ne '[]' } @cases), "$alert is tested firing and not firing");
}

# A rule that never fires is found: the tests are not green whatever the rules say.
{
	my $deaf = $rules;
	$deaf =~ s/effect_unknown_oldest_seconds > 3600/effect_unknown_oldest_seconds > 360000/ or die;
	write_file('alerts.yaml', $deaf);
	my $out = '';
	ok(!IPC::Run::run([ $program{promtool}, qw(test rules), write_file('alerts_test.yaml', $tests) ], '>', \$out, '2>&1'),
		'the tests of the rules fail where a rule is deaf');
	like($out, qr/EffectUnknownOld/, 'and name it');
	write_file('alerts.yaml', $rules);
}

# ---------------------------------------------------------------------------
# Traffic: something of everything that the five numbers are about.
# ---------------------------------------------------------------------------

my $odd = qq(say "hi" \\ {x="y"}, \x{fc}\n\x{202e});
{
	my $dbh = session($node, utf8 => 1);
	my $begin = sub { return row($dbh, 'SELECT * FROM effect.begin_effect(?, ?)', @_) };
	$dbh->do('SET effect.stats_flush_interval = 0');
	$dbh->do(q(SELECT effect.set_job('nightly', every => '1 hour', overlap => 'coalesce', lease_for => '10 minutes')));
	$dbh->do(q(SELECT effect.set_job('late', every => '1 second', overlap => 'coalesce', lease_for => '100 milliseconds')));
	$dbh->do(q(SELECT effect.set_action('pay', approvals_required => 1)));

	# Dedupe that works, and some that was never tried.
	my $one = $begin->('charge', 'order-1');
	is($one->{verdict}, 'go', 'one charge is told go');
	$dbh->do('SELECT effect.complete_effect(?, ?)', undef, @$one{qw(effect_key fencing_token)});
	is($begin->('charge', 'order-1')->{verdict}, 'done', "duplicate $_ is told done") for 1 .. 7;
	$begin->('mail', "letter-$_") for 1 .. 12;
	$begin->($odd, 'x');

	# An unknown, an abandoned claim, a claim that awaits approval.
	my $lost = $begin->('charge', 'order-2');
	$dbh->do('SELECT effect.mark_unknown(?, ?, ?)', undef, @$lost{qw(effect_key fencing_token)}, 'read timeout');
	is($begin->('charge', 'order-2')->{verdict}, 'unknown', 'what is unknown blocks');
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('pay', 'invoice-1'))), 'unapproved', 'one awaits approval');

	# A run that finishes, one that is live, firings that are dropped, one that comes back too late.
	my $token = value($dbh, q(SELECT fencing_token FROM effect.claim_lease('nightly', 'a')));
	$dbh->do(q(SELECT effect.release_lease('nightly', ?)), undef, $token);
	my $stale = value($dbh, q(SELECT fencing_token FROM effect.claim_lease('nightly', 'b')));
	is(verdict($dbh, q(SELECT * FROM effect.claim_effect('charge', 'order-3', '{}', 'nightly', ?)), $stale), 'reserved', 'one is claimed');
	$dbh->do(q(SELECT effect.revoke_lease('nightly', 'silent')));
	$dbh->do(q(SELECT effect.claim_lease('nightly', 'c')));
	is(verdict($dbh, q(SELECT * FROM effect.claim_lease('nightly', 'd'))), 'coalesced', "firing $_ is dropped") for 1 .. 3;
	is(sqlstate_of($dbh, q(SELECT effect.fence('nightly', ?)), $stale), 'LE001', "stale write $_ is refused") for 1 .. 5;
	is(verdict($dbh, q(SELECT * FROM effect.begin_effect('charge', 'order-4', '{}', 'nightly', ?)), $stale), 'fenced', 'and a stale attempt');
	$dbh->do(q(SELECT effect.claim_lease('late', 'gone')));
	$dbh->do(q(SELECT * FROM effect.sweep()));
	$dbh->disconnect;    # which writes down what is left
}
wait_until('the counters to be written down', sub {
	value($boss, q(SELECT fenced = 1 AND duplicates = 7 FROM effect.action_stats WHERE action = 'charge')) });
wait_until('a job to be late', sub { value($boss, q(SELECT overdue FROM effect.job_stats WHERE job_key = 'late')) });
$boss->do('SELECT effect.sweep()');

# ---------------------------------------------------------------------------
# Exporter and prometheus, as doc/monitoring.md says.
# ---------------------------------------------------------------------------

$boss->do('CREATE ROLE prometheus LOGIN');
$boss->do('ALTER ROLE prometheus SET jit = off');
$boss->do(q(SELECT effect.grant_monitor('prometheus')));

# What is kept for a minute there is asked each time here.
my $queries = slurp_file("$root/postgres_exporter.yaml");
$queries =~ s/^  cache_seconds: \d+\n//mg;
write_file('queries.yaml', $queries);
{
	local $ENV{DATA_SOURCE_NAME} = sprintf 'user=prometheus host=%s port=%d dbname=postgres sslmode=disable', $node->host, $node->port;
	start('exporter.log', 'prometheus-postgres-exporter', "--web.listen-address=127.0.0.1:$port{exporter}",
		"--extend.query-path=$dir/queries.yaml", '--disable-default-metrics', '--disable-settings-metrics');
}
my $page = wait_until('the exporter to answer', sub { my $p = fetch('exporter', '/metrics'); $p && $p =~ /^effect_/m && $p });
$page = join '', map { "$_\n" } grep { /^(?:# (?:HELP|TYPE) )?effect_/ } split /\n/, $page;
promtool_likes('promtool finds the names good', qw(check metrics), \$page);
like($page, qr/^# TYPE effect_action_duplicates_total counter$/m, 'a counter is a counter');
like($page, qr/^# TYPE effect_unknown gauge$/m, 'a gauge is a gauge');
is(join(' ', grep { !/_total$/ } $page =~ /^# TYPE (\S+) counter$/mg), '', 'every counter is a total');
is(join(' ', grep { /_total$/ } $page =~ /^# TYPE (\S+) gauge$/mg), '', 'and no gauge is');
unlike($page, qr/untyped|unknown metric/i, 'every column has a type');

my $config = write_file('prometheus.yml', <<"YML");
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
  - job_name: postgres
    static_configs: [{targets: ['127.0.0.1:$port{exporter}']}]
YML
promtool_likes('promtool finds the configuration good', qw(check config), $config);
start('prometheus.log', 'prometheus', "--config.file=$config", "--storage.tsdb.path=$dir/tsdb",
	"--web.listen-address=127.0.0.1:$port{prometheus}", '--log.level=warn');

# Every series there is, as `name label="value" ...` => value; NaN is none.
sub series
{
	my $data = ask('query', query => '{__name__=~"effect_.+"}') or return;
	my %series;
	for my $s (@{ $data->{result} })
	{
		my %label = %{ $s->{metric} };
		delete @label{qw(server instance job datname)};
		my $name = delete $label{__name__};
		$series{ series_name($name, %label) } = $s->{value}[1] unless $s->{value}[1] eq 'NaN';
	}
	return %series ? \%series : undef;
}

sub series_name { my ($name, %label) = @_; return join ' ', $name, map { qq($_="$label{$_}") } sort keys %label }

sub metrics
{
	my %there;
	for my $m (@{ $boss->selectall_arrayref('SELECT name, labels::text, value FROM effect.metrics()') })
	{
		$there{ series_name($m->[0], %{ JSON::PP->new->decode($m->[1]) }) } = $m->[2];
	}
	return \%there;
}

# Ages go on between two looks.
sub differing
{
	my ($here, $there) = @_;
	return grep {
		my ($a, $b) = ($here->{$_}, $there->{$_});
		!defined $b || (/age_seconds|oldest_seconds/ ? abs($a - $b) > 30 : $a != $b)
	} sort keys %$here;
}

# What has not moved yet is counted by the exporter all the same.
my ($labels) = slurp_file("$root/../src/stats.c") =~ /stats_labels\[\] = \{(.*?)\}/s;
is(join(' ', grep { $page !~ /^# TYPE effect_(?:job|action)_${_}_total counter$/m } $labels =~ /"(\w+)"/g), '', 'each counter that src/stats.c has is exported');

my ($series, $metrics);
my $same = eval { wait_until('prometheus to know what metrics() says', sub {
	$metrics = metrics(); $series = series() or return; !differing($metrics, $series) }, 30) };
cmp_ok(scalar(keys %$metrics), '>', 50, 'effect.metrics() has ' . keys(%$metrics) . ' numbers');
ok($same, 'prometheus has each of them, under the same name, with the same value')
  or diag(join "\n", map { sprintf '%s: %s, there %s', $_, $metrics->{$_}, defined $series->{$_} ? $series->{$_} : 'missing' } differing($metrics, $series || {}));
is(join("\n", grep { !exists $metrics->{$_} && !/^effect_attention_rows / && $series->{$_} != 0 } sort keys %$series), '',
	'and nothing else, but the rows of attention, and counters that never moved');
my %expect = (
	'effect_action_duplicates_total action="charge"' => 7, 'effect_action_go_total action="mail"' => 12,
	'effect_action_duplicates_total action="mail"' => 0, 'effect_action_blocked_total action="charge"' => 1,
	'effect_action_fenced_total action="charge"' => 1, 'effect_job_fenced_total job_key="nightly"' => 6,
	'effect_job_coalesced_total job_key="nightly"' => 3, 'effect_unknown action="charge"' => 1,
	'effect_abandoned_claims action="charge"' => 1, 'effect_awaiting_approval action="pay"' => 1,
	'effect_lease_held job_key="nightly"' => 1, 'effect_lease_held job_key="late"' => 0,
	'effect_job_every_seconds job_key="nightly"' => 3600, 'effect_job_lease_seconds job_key="nightly"' => 600,
	'effect_job_overdue job_key="late"' => 1, 'effect_job_overdue job_key="nightly"' => 0,
	'effect_cluster_quarantined' => 0,
);
is($series->{$_}, $expect{$_}, "$_ is $expect{$_}") for sort keys %expect;
is($series->{ series_name('effect_action_go_total', action => $odd) }, 1, 'a name of odd characters arrives as it is');
cmp_ok($series->{'effect_job_run_p99_seconds job_key="nightly"'}, '>', 0, 'run times are there');

# ---------------------------------------------------------------------------
# Rules and dashboard: every name exists, every question is answered.
# ---------------------------------------------------------------------------

my %exists = map { $_ => 1 } $page =~ /^# TYPE (\S+)/mg;
my $board = decode_json(slurp_file("$root/grafana.json"));
my @exprs = map { my $p = $_; map { [ $p->{title}, $_->{expr} ] } @{ $p->{targets} } } @{ $board->{panels} };
my @variables = grep { defined } map { $_->{definition} } @{ $board->{templating}{list} };
for my $used ([ 'alerts.yaml', $rules ], [ 'alerts_test.yaml', $tests ], [ 'grafana.json', join "\n", @variables, map { $_->[1] } @exprs ])
{
	my %names = map { $_ => 1 } $used->[1] =~ /\b(effect_[a-z0-9_]+)\b(?!\()(?<!effect_key)/g;
	is(join(' ', grep { !$exists{$_} } sort keys %names), '', "$used->[0]: each of " . keys(%names) . ' names exists');
}
my %documented = map { $_ => 1 } slurp_file("$root/../doc/monitoring.md") =~ /\b(effect_[a-z0-9_]+)\b/g;
is(join(' ', grep { !$documented{$_} } sort keys %exists), '', 'doc/monitoring.md names each of ' . keys(%exists) . ' metrics');

cmp_ok(scalar(@exprs), '>', 20, @exprs . ' expressions on the dashboard');
my %variable = map { $_->{name} => 1 } @{ $board->{templating}{list} };
for my $e (@exprs)
{
	my ($title, $expr) = @$e;
	my @unknown = grep { !$variable{$_} } $expr =~ /\$(\w+)/g;
	$expr =~ s/\$\w+/.*/g;
	my $answer = eval { wait_until("an answer to $expr", sub { my $d = ask('query', query => $expr); $d && @{ $d->{result} } && $d }, 15) };
	ok($answer && !@unknown, "$title: $expr");
}
is(scalar(keys %{ { map { $_->{id} => 1 } @{ $board->{panels} } } }), scalar(@{ $board->{panels} }), 'each panel has an id of its own');
is(join(' ', grep { $_ ne '${datasource}' } map { $_->{datasource}{uid} } @{ $board->{panels} }, map { @{ $_->{targets} } } @{ $board->{panels} }),
	'', 'each panel asks the data source that is chosen');

# Prometheus evaluates the rules, and they see what is done now.
sub alerts { return map { ("$_->{labels}{alertname}" => $_->{state}) } @{ (ask('alerts') || {})->{alerts} || [] } }
my $groups = wait_until('the rules to be evaluated', sub {
	my $g = ask('rules'); $g && !grep({ $_->{health} eq 'unknown' } map { @{ $_->{rules} } } @{ $g->{groups} }) && $g });
my @loaded = map { @{ $_->{rules} } } @{ $groups->{groups} };
is(scalar(@loaded), scalar(() = $rules =~ /- alert:/g), 'prometheus has loaded each rule');
is(join(' ', map { "$_->{name}: $_->{lastError}" } grep { $_->{health} ne 'ok' } @loaded), '', 'and evaluates each');
my %alert = alerts();
is($alert{EffectQuarantined}, undef, 'it is not quarantined');
is($alert{EffectJobOverdue}, 'pending', 'the job that is late is seen');
is($alert{EffectClaimsNeverSubmitted}, 'pending', 'so is the abandoned claim');
is($alert{EffectFenced}, undef, 'what was fenced before prometheus looked is no increase');
{
	my $dbh = session($node);
	$dbh->do('SET effect.stats_flush_interval = 0');
	is(sqlstate_of($dbh, q(SELECT effect.fence('nightly', 2))), 'LE001', 'a stale write more is refused');
	$dbh->disconnect;
}
$boss->do(q(SELECT effect.quarantine('drill')));
wait_until("$_ to fire", sub { my %now = alerts(); ($now{$_} || '') eq 'firing' }) && pass("$_ fires") for qw(EffectFenced EffectQuarantined);

# For the record, with nothing kept from one scrape to the next.
my $took = ask('query', query => 'max_over_time(scrape_duration_seconds[5m])');
note(sprintf 'the longest scrape took %.0f ms', 1000 * $took->{result}[0]{value}[1]);
# Later exporters call query files deprecated, and read them.
sub complaints { return join "\n", grep { /level=(?:error|warn)/i && !/deprecated/i } lines_of("$dir/$_[0]") }
is(complaints('exporter.log'), '', 'the exporter has no complaints');
is(complaints('prometheus.log'), '', 'nor has prometheus');

stop_all();
ok(!defined fetch($_, '/metrics'), "$_ is stopped") for sort keys %port;
$boss->disconnect;
$node->stop;
done_testing();
