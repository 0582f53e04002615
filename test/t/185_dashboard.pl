# effect.dashboard() in a real browser (issue 5).
#
# Chromium opens the page that psql wrote, with names made to break out of it:
# nothing in it may run, everything must be there as text, and nothing may be
# wider than a phone. CDP is not needed: a page of our own loads ours into a frame
# of the width and colour scheme in question, looks around in it, and leaves what
# it saw in its own DOM, which --dump-dom prints.
#
# NO_BROWSER=1 does without. SHOTS=directory keeps pictures to look at.

use strict;
use warnings;
use utf8;

use Encode qw(decode_utf8 encode_utf8);
use File::Temp;
use IPC::Run;
use JSON::PP;
use Test::More;
use EffectTest;

my ($browser) = grep { -x } map { ("$_/chromium", "$_/chromium-browser", "$_/google-chrome") } split /:/, $ENV{PATH};
plan skip_all => 'NO_BROWSER is set' if $ENV{NO_BROWSER};
BAIL_OUT('no chromium (NO_BROWSER=1 does without)') unless $browser;

my @names = (
	'<script>document.title = 1; alert(1)</script>', '"><img src=x onerror="document.title=1">',
	q(it's "quoted" & so \ on \\\\), '</bdi></td></table><h1>out</h1>', '</style><style>*{display:none}</style>',
	'&lt;b&gt; &#60;', 'javascript:alert(1)', "' onmouseover='document.title=1", '%s %1$s {{7*7}} ${1}',
	"\x{05e2}\x{05d1}\x{05e8}\x{05d9}\x{05ea} 12", "\x{0645}\x{0631}\x{062d}\x{0628}\x{0627} 34",
	"\x{1f469}\x{200d}\x{1f469}\x{200d}\x{1f467} \x{2705}", "d\x{e9}j\x{e0} \x{65e5}\x{672c}", 'W' x 100);
my @long = ('l' x 200, 'long ' x 40, '"' x 200, "\x{1f4a5}" x 60);
my @bidi = ("\x{202e}right to left\x{202c}", "\x{2066}\x{2069}\x{2069}out");

my $node = new_node('dashboard', conf => "fsync = off\n");
my $dir = File::Temp->newdir('effect_browser_XXXXXX', TMPDIR => 1);
my $dbh = session($node, utf8 => 1);
$dbh->do('SET client_min_messages = error');

sub write_file
{
	my ($name, $text) = @_;
	open(my $fh, '>:raw', "$dir/$name") or die "$dir/$name: $!";
	print $fh $text;
	close $fh;
	return "$dir/$name";
}

# The page, by the command that the documentation gives.
sub write_page
{
	my ($name) = @_;
	my ($out, $err) = ('', '');
	local $ENV{PGCLIENTENCODING} = 'UTF8';
	IPC::Run::run([ 'psql', '-XAtc', 'SELECT effect.dashboard()', '-d', $node->connstr('postgres') ], '>', \$out, '2>', \$err)
	  or die "psql: $err";
	write_file($name, $out);
	return decode_utf8($out);
}

my $profiles = 0;

sub chromium
{
	my (@args) = @_;
	my ($out, $err) = ('', '');
	my $home = "$dir/home" . ++$profiles;
	mkdir $home;
	local @ENV{qw(HOME XDG_CONFIG_HOME XDG_CACHE_HOME)} = ($home, $home, $home);
	my $ok = eval {
		IPC::Run::run([ $browser, qw(--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars
			  --disable-background-networking --disable-component-update --allow-file-access-from-files),
			"--user-data-dir=$home/profile", @args ], '<', \'', '>', \$out, '2>', \$err, IPC::Run::timeout(90));
	};
	diag("chromium: $@ $err") unless $ok;
	return decode_utf8($out);
}

# What stands in the page, seen from outside at this width, in this scheme.
sub look
{
	my ($page, $width, $scheme) = @_;
	my $harness = write_file("look_$width$scheme.html", <<"HTML");
<!DOCTYPE html><meta charset="utf-8"><body style="margin:0; color-scheme: $scheme">
<iframe id="f" src="$page" style="border:0; width:${width}px; height:900px; color-scheme: $scheme"></iframe>
<pre id="seen"></pre>
<script>
document.getElementById('f').onload = function () {
	var w = this.contentWindow, d = w.document, r = d.documentElement, seen = {};
	d.querySelectorAll('details').forEach(function (e) { e.open = true });
	seen.title = d.title;
	seen.scripts = d.querySelectorAll('script, iframe, img, object, embed, form, base, link:not([href="data:,"])').length;
	seen.handlers = Array.from(d.querySelectorAll('*')).filter(function (e) {
		return Array.from(e.attributes).some(function (a) { return /^on|^(src|srcset|action|background)\$/i.test(a.name) }) }).length;
	seen.styles = d.querySelectorAll('style').length;
	seen.h1 = d.querySelectorAll('h1').length;
	seen.sections = Array.from(d.querySelectorAll('main > section')).map(function (e) { return e.id });
	seen.names = Array.from(new Set(Array.from(d.querySelectorAll('bdi')).map(function (e) { return e.textContent })));
	seen.titles = Array.from(new Set(Array.from(d.querySelectorAll('bdi[title]')).map(function (e) { return e.title })));
	seen.width = r.clientWidth;
	seen.scroll = Math.max(r.scrollWidth, d.body.scrollWidth);
	seen.outside = Array.from(d.querySelectorAll('body *')).filter(function (e) {
		return e.getBoundingClientRect().right > r.clientWidth + 1 && !e.closest('svg') }).map(function (e) { return e.tagName + '.' + e.className });
	seen.background = w.getComputedStyle(d.body).backgroundColor;
	seen.faint = faint(w, d);
	document.getElementById('seen').textContent = JSON.stringify(seen);
};
// Text whose contrast to what it stands on is below 4.5 (WCAG 2.1).
function faint(w, d) {
	function rgb(s) { return s.match(/[\\d.]+/g).map(Number) }
	function light(c) { return c.slice(0, 3).map(function (v) { v /= 255; return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4) })
		.reduce(function (s, v, i) { return s + v * [0.2126, 0.7152, 0.0722][i] }, 0) }
	function behind(e) { for (; e; e = e.parentElement) { var c = rgb(w.getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c } return [255, 255, 255] }
	var bad = new Set();
	d.querySelectorAll('body *').forEach(function (e) {
		if (!Array.from(e.childNodes).some(function (n) { return n.nodeType == 3 && n.data.trim() })) return;
		var a = light(rgb(w.getComputedStyle(e).color)), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.add(e.tagName + '.' + e.className + ' ' + ratio.toFixed(1));
	});
	return Array.from(bad);
}
</script>
HTML
	my $dom = chromium('--virtual-time-budget=10000', '--window-size=1400,1000', '--dump-dom', "file://$harness");
	my ($json) = $dom =~ m{<pre id="seen">(.*?)</pre>}s;
	return undef unless $json;
	s/&lt;/</g, s/&gt;/>/g, s/&nbsp;/\x{a0}/g, s/&amp;/&/g for $json;
	return JSON::PP->new->decode($json);
}

sub looks_right
{
	my ($what, $page) = @_;
	my %background;
	for my $width (390, 1280)
	{
		for my $scheme (qw(light dark))
		{
			my $seen = look($page, $width, $scheme);
			my $at = "$what, $width px, $scheme";
			ok($seen, "$at: it opens") or next;
			is($seen->{title}, 'effect: postgres', "$at: no script has changed the title");
			is_deeply([ @$seen{qw(scripts handlers styles h1)} ], [ 0, 0, 1, 1 ], "$at: no element and no attribute that is not ours");
			is_deeply($seen->{sections}, [qw(attention leases effects counters runs)], "$at: every section is where it belongs");
			cmp_ok($seen->{scroll}, '<=', $seen->{width}, "$at: nothing to scroll sideways");
			is_deeply($seen->{outside}, [], "$at: nothing reaches out of it");
			is_deeply($seen->{faint}, [], "$at: every text can be read");
			$background{$scheme} = $seen->{background};
			has_names($at, $seen) if $what eq 'hostile';
		}
	}
	isnt($background{light}, $background{dark}, "$what: there are two colour schemes");
}

sub has_names
{
	my ($at, $seen) = @_;
	my %name = map { $_ => 1 } @{ $seen->{names} };
	my %title = map { $_ => 1 } @{ $seen->{titles} };
	is_deeply([ grep { !$name{$_} } @names ], [], "$at: every name is there as text");
	is_deeply([ grep { !$title{$_} && !$name{$_} } @long ], [], "$at: a long one as the title of what is cut");
	is_deeply([ grep { /[\x00-\x08\x0b-\x1f\x{202a}-\x{202e}\x{2066}-\x{2069}]/ } @{ $seen->{names} } ], [], "$at: none that reorders its neighbours");
}

sub nothing_from_elsewhere
{
	my ($what, $page) = @_;
	my ($style) = $page =~ m{<style>(.*?)</style>}s;
	my $tags = join "\n", $page =~ /<[^>]*>/g;
	unlike($style, qr{\@import|url\(|https?:|//}, "$what: the style sheet loads nothing");
	unlike($tags =~ s/ (?:title|aria-label)="[^"]*"//gr, qr{\bsrc=|https?:|\burl\(|href="(?!data:,")}i, "$what: nor does a tag");
	like($page, qr/default-src 'none'/, "$what: nor could it");
	cmp_ok(length(encode_utf8($page)), '<', 1_000_000, "$what: it stays below 1 MB");
}

nothing_from_elsewhere('empty', write_page('empty.html'));
looks_right('empty', "empty.html");

for my $name (@names, @long, @bidi)
{
	$dbh->do('SELECT effect.set_job(?, every => $$1 minute$$, overlap => $$queue$$, queue_limit => 3, lease_for => $$30 seconds$$)', undef, $name);
	$dbh->do('SELECT effect.claim_lease(?, ?, $$1 hour$$, firing => ?)', undef, ($name) x 3);
	$dbh->do('SELECT effect.set_action(?)', undef, $name);
	$dbh->do('SELECT effect.begin_effect(?, ?, job_key => ?, fencing_token => 1)', undef, ($name) x 3);
	$dbh->do('SELECT effect.mark_unknown(effect.effect_key($1, $1, effect.input_digest($${}$$)), 1, $1)', undef, $name);
}
$dbh->do('SELECT effect.revoke_lease(?, ?)', undef, $_, $_) for @bidi;
$dbh->do('SET session_replication_role = replica');
$dbh->do(q(UPDATE effect.unknown SET since = since - interval '3 hours'));
$dbh->do(q(INSERT INTO effect.run (job_key, fencing_token, owner, outcome, started_at, ended_at, role_name)
	SELECT job_key, fencing_token + 1, owner, 'finished', clock_timestamp() - interval '50 seconds', clock_timestamp(), 'r' FROM effect.run));
$dbh->do(q(INSERT INTO effect.counter SELECT k, j.job_key, c, date_trunc('hour', clock_timestamp(), 'UTC') - h * interval '1 hour', 1000000 * (h + 1)
	FROM effect.job j, generate_series(0, 23) h, (VALUES ('job', 'granted'), ('job', 'held'), ('action', 'go'), ('action', 'duplicates')) AS v(k, c)));

my $page = write_page('hostile.html');
nothing_from_elsewhere('hostile', $page);
looks_right('hostile', 'hostile.html');

# By itself, without a frame; and a picture is drawn.
my $dom = chromium('--virtual-time-budget=5000', '--dump-dom', "file://$dir/hostile.html");
like($dom, qr{<title>effect: postgres</title>}, 'opened by itself it keeps its title');
unlike($dom, qr{<script}i, 'and has no script');
my $shots = $ENV{SHOTS} || "$dir";
for my $shot ([ 'light', 1 ], [ 'dark', 0 ])
{
	my $file = "$shots/dashboard_$shot->[0].png";
	chromium("--blink-settings=preferredColorScheme=$shot->[1]", '--window-size=1280,2400', "--screenshot=$file", "file://$dir/hostile.html");
	cmp_ok(-s $file || 0, '>', 10_000, "a picture is drawn: $shot->[0]");
}

$dbh->disconnect;
$node->stop;
done_testing();
