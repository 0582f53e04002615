-- dashboard: the numbers as one page, for where there is no Prometheus.
--
-- Nothing but HTML and CSS comes out of here: no script, and a policy that would
-- stop one. Whatever somebody else has named goes through effect.escape_html and
-- stands in a <bdi>. Own text is ASCII, so the page is right in every encoding.
-- Every list is bounded and says how much it leaves out. Bodies are not read.

-- Unicode's overrides and isolates would end a <bdi>; joiners belong to names.
CREATE FUNCTION effect.escape_html(value text) RETURNS text
	LANGUAGE sql STABLE
	RETURN pg_catalog.regexp_replace(
		pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(pg_catalog.replace(
			value, '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), '"', '&quot;'), '''', '&#39;') COLLATE "C",
		CASE pg_catalog.getdatabaseencoding() WHEN 'UTF8'
			THEN $r$[\u0001-\u0008\u000b-\u001f\u007f-\u009f\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]$r$
			ELSE $r$[\u0001-\u0008\u000b-\u001f\u007f]$r$ END, '&#xFFFD;', 'g');
COMMENT ON FUNCTION effect.escape_html(text) IS
	'text for HTML, in an element or a quoted attribute; control characters become U+FFFD';

CREATE FUNCTION effect.dashboard_name(name text) RETURNS text
	LANGUAGE sql STABLE
	RETURN CASE WHEN name = '' THEN '<i>all other names</i>'
		WHEN pg_catalog.char_length(name) <= 100 THEN '<bdi>' || effect.escape_html(name) || '</bdi>'
		ELSE '<bdi title="' || effect.escape_html(pg_catalog."left"(name, 200)) || '">'
			|| effect.escape_html(pg_catalog."left"(name, 90)) || '&hellip;</bdi>' END;
COMMENT ON FUNCTION effect.dashboard_name(text) IS
	'dashboard: a name somebody gave, cut where it is too long, kept from reordering its neighbours';

CREATE FUNCTION effect.dashboard_span(span interval) RETURNS text
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	SELECT CASE WHEN s.e < 1 THEN pg_catalog.round(s.e * 1000) || ' ms'
			WHEN s.e < 10 THEN pg_catalog.trim_scale(pg_catalog.trunc(s.e, 1)) || ' s'
			WHEN s.e < 60 THEN pg_catalog.floor(s.e) || ' s'
			WHEN s.e < 3600 THEN pg_catalog.div(s.e, 60) || ' min' || CASE WHEN s.e % 60 >= 1
				THEN ' ' || pg_catalog.floor(s.e % 60) || ' s' ELSE '' END
			WHEN s.e < 86400 THEN pg_catalog.div(s.e, 3600) || ' h' || CASE WHEN s.e % 3600 >= 60
				THEN ' ' || pg_catalog.div(s.e % 3600, 60) || ' min' ELSE '' END
			ELSE pg_catalog.div(s.e, 86400) || ' d' || CASE WHEN s.e % 86400 >= 3600
				THEN ' ' || pg_catalog.div(s.e % 86400, 3600) || ' h' ELSE '' END END
	  FROM (SELECT pg_catalog.abs(EXTRACT(epoch FROM span)) AS e) AS s;
	END;
COMMENT ON FUNCTION effect.dashboard_span(interval) IS 'dashboard: a length of time in two units at most';

CREATE FUNCTION effect.dashboard_time(at timestamptz) RETURNS text
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	SELECT CASE WHEN at IS NULL THEN NULL
		WHEN NOT pg_catalog.isfinite(at) THEN at::text
		ELSE pg_catalog.format('<time datetime="%s" title="%s">%s</time>',
			pg_catalog.to_char(at, 'YYYY-MM-DD"T"HH24:MI:SSTZH:TZM'),
			effect.escape_html(pg_catalog.to_char(at, 'YYYY-MM-DD HH24:MI:SS TZ')),
			CASE WHEN at > n.now THEN 'in ' || effect.dashboard_span(at - n.now)
				 WHEN at > n.now - '1 second'::interval THEN 'now'
				 ELSE effect.dashboard_span(n.now - at) || ' ago' END) END
	  FROM (SELECT pg_catalog.clock_timestamp() AS now) AS n;
	END;
COMMENT ON FUNCTION effect.dashboard_time(timestamptz) IS 'dashboard: a time as seen from now, with the time itself as its title';

CREATE FUNCTION effect.dashboard_number(n numeric) RETURNS text
	LANGUAGE sql STABLE
	RETURN pg_catalog.to_char(n, 'FM999,999,999,999,999,999,990');
COMMENT ON FUNCTION effect.dashboard_number(numeric) IS 'dashboard: a count, in groups of three digits';

-- What a list leaves out, and where it stands whole.
CREATE FUNCTION effect.dashboard_more(n bigint, query text) RETURNS text
	LANGUAGE sql STABLE
	RETURN CASE WHEN n > 0 THEN pg_catalog.format('<p class="more">and %s more: <code>%s</code></p>',
		effect.dashboard_number(n), query) ELSE '' END;
COMMENT ON FUNCTION effect.dashboard_more(bigint, text) IS 'dashboard: how many rows a list leaves out, and how to see them';

-- Colours are those of a page that is read at night: each text has a contrast of
-- 4.5 to 1 or more on what it stands on, in both schemes.
CREATE FUNCTION effect.dashboard_style() RETURNS text
	LANGUAGE sql STABLE
	RETURN $css$
:root { color-scheme: light dark; --page: #f4f5f6; --card: #fff; --text: #17191c; --muted: #565d66; --line: #d9dde1;
  --code: #eef0f2; --mark: #33689f; --soft: #a9c4e0; --over: #e3b26a;
  --critical: #b01e17; --warning: #8a4b00; --advice: #1f5aa8; --info: #565d66; --fine: #1d6b3a }
@media (prefers-color-scheme: dark) { :root { --page: #0f1113; --card: #181b1e; --text: #e4e7ea; --muted: #9da5ad;
  --line: #2f343a; --code: #23272b; --mark: #7fb0e6; --soft: #35536f; --over: #8a6424;
  --critical: #ff8d84; --warning: #f2b25b; --advice: #8bb9f5; --info: #9da5ad; --fine: #7fcf9a } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100% }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto,
  "Liberation Sans", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums }
header, main, footer { max-width: 1200px; margin: 0 auto; padding: 0 20px }
header { padding-top: 20px }
h1 { font-size: 22px; line-height: 1.25; margin: 0; overflow-wrap: anywhere }
h2 { font-size: 17px; margin: 0; display: inline }
h3 { font-size: 15px; margin: 20px 0 6px }
p { margin: 4px 0 }
section { margin: 26px 0 } #attention { margin-top: 14px }
.head { margin: 0 0 10px; display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: baseline }
.facts, .head p, .more, .note, footer, .sub { color: var(--muted); font-size: 13px }
.facts span { display: inline-block; margin-right: 16px; overflow-wrap: anywhere }
.verdict { font-size: 19px; margin: 0 0 2px }
bdi, td, .why, .who { overflow-wrap: anywhere; unicode-bidi: isolate }
code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere }
.step { display: block; direction: ltr; unicode-bidi: isolate; white-space: pre-wrap; background: var(--code); border-radius: 4px;
  padding: 5px 9px; margin-top: 6px; -webkit-user-select: all; user-select: all }
.key, .more code { -webkit-user-select: all; user-select: all }
ol { list-style: none; margin: 8px 0 0; padding: 0 }
summary { cursor: pointer; color: var(--muted); padding: 4px 0 }
details ol { display: grid; gap: 8px; grid-template-columns: repeat(auto-fill, minmax(min(100%, 480px), 1fr)) }
details .card { margin: 0; min-width: 0 }
.card, table, .empty { background: var(--card); border: 1px solid var(--line); border-radius: 6px }
.card { border-left: 5px solid var(--tone); padding: 9px 14px 11px; margin: 0 0 8px }
.card p { margin: 0 }
.card .top { display: flex; flex-wrap: wrap; gap: 0 10px; align-items: baseline; margin-bottom: 2px }
.who { font-weight: 600; min-width: 0 }
.since { color: var(--muted); font-size: 13px; margin-left: auto }
.tag { color: var(--tone); font-weight: 700; white-space: nowrap }
.critical { --tone: var(--critical) } .warning { --tone: var(--warning) } .advice { --tone: var(--advice) }
.info { --tone: var(--info) } .fine { --tone: var(--fine) }
.empty { padding: 12px 14px; color: var(--muted); margin: 0 }
table { width: 100%; border-collapse: separate; border-spacing: 0 }
th, td { text-align: left; vertical-align: top; padding: 7px 12px; border-top: 1px solid var(--line) }
thead th { border-top: 0; font-size: 12.5px; font-weight: 600; color: var(--muted); vertical-align: bottom }
th.n, td.n { text-align: right; white-space: nowrap }
td:first-child { font-weight: 600; min-width: 130px }
td.sub { font-weight: 400 }
td.wide { min-width: 110px }
td b { font-weight: 600 }
svg { display: block }
.grid { table-layout: fixed } .grid th:first-child { width: 17% } .none { color: var(--muted) }
.spark { width: 100%; max-width: 132px; height: 24px; margin: 2px 0 1px; border-bottom: 1px solid var(--line) }
.spark path, .bar .p50 { fill: var(--mark) }
.bar { width: 100%; min-width: 200px; height: 22px; overflow: visible }
.tag.wrap { white-space: normal }
.bar .track { fill: var(--code) } .bar .p99 { fill: var(--soft) } .bar .over { fill: var(--over) }
.bar path { stroke: var(--text); stroke-width: 2; fill: none; vector-effect: non-scaling-stroke }
.bar .every { stroke-dasharray: 3 2 } .bar .max { stroke: var(--mark) }
footer { padding-bottom: 30px }
@media (max-width: 760px) {
  header, main, footer { padding-left: 12px; padding-right: 12px }
  table, tbody, td { display: block; width: 100% } thead { display: none }
  tr { padding: 8px 12px; border-top: 1px solid var(--line) } tr:first-child { border-top: 0 }
  td, td.n, td.wide { border: 0; padding: 1px 0; text-align: left; white-space: normal; min-width: 0 }
  td[data-l]::before { content: attr(data-l) " "; color: var(--muted); font-size: 13px; font-weight: 400 }
  td:empty { display: none }
  tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 1px 12px }
  td:first-child, td.wide { grid-column: 1 / -1 }
  .grid tr { grid-template-columns: repeat(auto-fill, minmax(92px, 1fr)); gap: 6px 12px } .grid td[data-l]::before { display: block }
  .since { margin-left: 0 } .bar { margin: 3px 0 }
}
@media print { body { background: #fff } .card, tr { break-inside: avoid } }
$css$;
COMMENT ON FUNCTION effect.dashboard_style() IS 'dashboard: its style sheet';

-- While something is wrong, advice and notices are folded below it. That sweep
-- runs is no news: it stands in the line below the verdict alone.
CREATE FUNCTION effect.dashboard_attention() RETURNS text
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	WITH a AS MATERIALIZED (
		SELECT r.*, pg_catalog.row_number() OVER (ORDER BY r.swept, r.place) AS rank
		  FROM (SELECT v.*, pg_catalog.row_number() OVER () AS place, v.severity IN ('critical', 'warning') AS wrong,
					   v.what = 'sweep' AND v.severity = 'info' AS swept
				  FROM effect.attention v) AS r
	), c AS (
		SELECT pg_catalog.count(*) FILTER (WHERE a.severity = 'critical') AS critical,
			   pg_catalog.count(*) FILTER (WHERE a.severity = 'warning') AS warning,
			   pg_catalog.count(*) FILTER (WHERE a.severity = 'advice') AS advice,
			   pg_catalog.count(*) FILTER (WHERE a.severity = 'info' AND NOT a.swept) AS info,
			   pg_catalog.count(*) FILTER (WHERE NOT a.swept) AS listed,
			   pg_catalog.max(a.since) FILTER (WHERE a.what = 'sweep') AS swept
		  FROM a
	), cards AS (
		SELECT a.wrong, a.rank, pg_catalog.format('<li class="card %s"><div class="top"><span class="tag">%1$s</span>'
				|| '<span>%s</span><span class="who">%s</span><span class="since">%s</span></div>'
				|| '<p class="why">%s</p><code class="step">%s</code></li>',
				effect.escape_html(a.severity), effect.escape_html(pg_catalog.replace(a.what, '_', ' ')),
				effect.dashboard_name(a.who), effect.dashboard_time(a.since),
				effect.escape_html(CASE WHEN pg_catalog.char_length(a.why) > 600
					THEN pg_catalog."left"(a.why, 600) || ' ...' ELSE a.why END),
				effect.escape_html(a.next_step)) AS html
		  FROM a WHERE a.rank <= 40 AND NOT a.swept
	), list AS (
		SELECT pg_catalog.string_agg(d.html, E'\n' ORDER BY d.rank) FILTER (WHERE d.wrong) AS wrong,
			   pg_catalog.string_agg(d.html, E'\n' ORDER BY d.rank) FILTER (WHERE NOT d.wrong) AS rest
		  FROM cards d
	)
	SELECT pg_catalog.format(E'<section id="attention"><p class="verdict tag %s">%s</p>\n<p class="facts"><span>%s</span></p>\n',
			CASE WHEN c.critical > 0 THEN 'critical' WHEN c.warning > 0 THEN 'warning' ELSE 'fine' END,
			CASE WHEN c.critical + c.warning = 0 THEN 'Nothing is wrong now'
				ELSE pg_catalog.concat_ws(', ', CASE WHEN c.critical > 0 THEN c.critical || ' critical' END,
					CASE c.warning WHEN 0 THEN NULL WHEN 1 THEN '1 warning' ELSE c.warning || ' warnings' END) END,
			COALESCE('sweep ran ' || effect.dashboard_time(c.swept), 'sweep has never run'))
		|| COALESCE(E'<ol>' || list.wrong || E'</ol>\n', '')
		|| CASE WHEN list.rest IS NULL THEN '' ELSE pg_catalog.format(E'<details%s><summary>%s</summary><ol>%s</ol></details>\n',
			CASE WHEN c.critical + c.warning = 0 THEN ' open' END,
			pg_catalog.concat_ws(', ', CASE c.advice WHEN 0 THEN NULL WHEN 1 THEN '1 piece of advice' ELSE c.advice || ' pieces of advice' END,
				CASE c.info WHEN 0 THEN NULL WHEN 1 THEN '1 notice' ELSE c.info || ' notices' END), list.rest) END
		|| effect.dashboard_more(c.listed - 40, 'SELECT * FROM effect.attention;') || E'</section>\n'
	  FROM c, list;
	END;
COMMENT ON FUNCTION effect.dashboard_attention() IS 'dashboard: effect.attention, worst first, each with its next step';

CREATE FUNCTION effect.dashboard_leases() RETURNS text
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	WITH s AS MATERIALIZED (
		SELECT v.job_key, v.owner, v.fencing_token, v.firing, v.granted_at, v.lease_until, v.status, v.queued
		  FROM effect.leases v
	), c AS (
		SELECT pg_catalog.count(*) AS listed, pg_catalog.count(*) FILTER (WHERE s.status = 'live') AS live,
			   pg_catalog.count(*) FILTER (WHERE s.status = 'expired') AS expired,
			   pg_catalog.count(*) FILTER (WHERE s.status = 'free') AS free, pg_catalog.sum(s.queued) AS queued
		  FROM s
	), list AS (
		SELECT pg_catalog.string_agg(pg_catalog.format('<tr><td>%s</td><td data-l="status"><span class="tag %s">%s</span></td>'
				|| '<td data-l="holder" class="wide">%s</td><td data-l="token" class="n">%s</td><td data-l="firing">%s</td>'
				|| '<td data-l="granted" class="n">%s</td><td data-l="until" class="n">%s</td><td data-l="waiting" class="n">%s</td></tr>',
				effect.dashboard_name(r.job_key),
				CASE r.status WHEN 'live' THEN 'fine' WHEN 'expired' THEN 'warning' ELSE 'info' END, r.status,
				COALESCE(effect.dashboard_name(r.owner), 'nobody'), r.fencing_token,
				CASE WHEN r.owner IS NULL THEN '' ELSE COALESCE(effect.dashboard_name(r.firing), 'none') END,
				CASE WHEN r.owner IS NULL THEN '' ELSE effect.dashboard_time(r.granted_at) END,
				CASE WHEN r.owner IS NULL THEN '' ELSE effect.dashboard_time(r.lease_until) END,
				effect.dashboard_number(r.queued)), E'\n' ORDER BY r.place) AS html
		  FROM (SELECT s.*, pg_catalog.row_number() OVER (ORDER BY pg_catalog.array_position('{expired,live,free}', s.status),
					s.queued = 0, CASE WHEN s.owner IS NOT NULL THEN s.granted_at END, s.job_key) AS place
				  FROM s ORDER BY place LIMIT 40) AS r
	)
	SELECT E'<section id="leases"><div class="head"><h2>Leases now</h2>' || CASE WHEN c.listed = 0
			THEN E'</div><p class="empty">No job has ever been claimed here.</p></section>\n'
			ELSE pg_catalog.format(E'<p>%s live, %s expired, %s free; %s waiting</p></div>\n<table><thead><tr>'
				|| '<th>job</th><th>status</th><th>holder</th><th class="n">token</th><th>firing</th><th class="n">granted</th>'
				|| E'<th class="n">until</th><th class="n">waiting</th></tr></thead><tbody>%s</tbody></table>%s</section>\n',
				effect.dashboard_number(c.live), effect.dashboard_number(c.expired), effect.dashboard_number(c.free),
				CASE c.queued WHEN 1 THEN '1 firing' ELSE effect.dashboard_number(c.queued) || ' firings' END,
				list.html, effect.dashboard_more(c.listed - 40, 'SELECT * FROM effect.leases;')) END
	  FROM c, list;
	END;
COMMENT ON FUNCTION effect.dashboard_leases() IS 'dashboard: who holds what, expired ones first, free ones last';

-- An unknown effect whose action says drop waits for nobody: it comes last.
CREATE FUNCTION effect.dashboard_effects() RETURNS text
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	WITH o AS MATERIALIZED (
		SELECT e.effect_key, e.action, e.target, e.attempt, e.job_key, e.fencing_token, e.held, e.since, e.unknown_reason,
			   e.checks, e.next_check, CASE WHEN e.state <> 'unknown' THEN e.state::text
				WHEN d.effect_key IS NULL THEN 'unknown' ELSE 'dropped' END AS state
		  FROM effect.open_effects e
		  LEFT JOIN (SELECT u.effect_key FROM effect.unknown_effects u WHERE u.on_unknown = 'drop') AS d
			ON d.effect_key = e.effect_key
	), c AS (
		SELECT pg_catalog.count(*) AS listed, pg_catalog.count(*) FILTER (WHERE o.state = 'unknown') AS unknown,
			   pg_catalog.count(*) FILTER (WHERE o.state = 'submitted') AS submitted,
			   pg_catalog.count(*) FILTER (WHERE o.state = 'claimed') AS claimed
		  FROM o
	), list AS (
		SELECT pg_catalog.string_agg(pg_catalog.format('<tr><td>%s</td><td data-l="state"><span class="tag %s">%s</span></td>'
				|| '<td data-l="target" class="wide">%s</td><td data-l="since" class="n">%s</td><td data-l="attempt" class="n">%s</td>'
				|| '<td data-l="run" class="wide">%s</td><td data-l="key" class="sub wide"><code class="key">%s</code>%s</td></tr>',
				effect.dashboard_name(r.action), CASE r.state WHEN 'unknown' THEN 'warning' ELSE 'info' END, r.state,
				effect.dashboard_name(r.target), effect.dashboard_time(r.since), r.attempt,
				CASE WHEN r.job_key IS NULL THEN 'by itself'
					ELSE effect.dashboard_name(r.job_key) || ' ' || r.fencing_token END || CASE WHEN r.held THEN ''
					WHEN r.state = 'claimed' THEN ', held by nobody' ELSE '' END,
				r.effect_key, COALESCE('<br>' || effect.escape_html(pg_catalog."left"(r.unknown_reason, 200)), '')
					|| COALESCE('<br>looked at ' || NULLIF(r.checks, 0) || ' times, next ' || effect.dashboard_time(r.next_check), '')),
				E'\n' ORDER BY r.place) AS html
		  FROM (SELECT o.*, pg_catalog.row_number() OVER (ORDER BY
					pg_catalog.array_position('{unknown,submitted,claimed,dropped}', o.state), o.since, o.effect_key) AS place
				  FROM o ORDER BY place LIMIT 50) AS r
	)
	SELECT '<section id="effects"><div class="head"><h2>Open effects</h2>' || CASE WHEN c.listed = 0
			THEN E'</div><p class="empty">No effect is open: whatever was begun has ended.</p></section>\n'
			ELSE pg_catalog.format(E'<p>%s unknown, %s submitted, %s claimed; oldest first</p></div>\n<table><thead><tr>'
				|| '<th>action</th><th>state</th><th>target</th><th class="n">since</th><th class="n">attempt</th><th>run</th>'
				|| E'<th>key</th></tr></thead><tbody>%s</tbody></table>%s</section>\n',
				effect.dashboard_number(c.unknown), effect.dashboard_number(c.submitted), effect.dashboard_number(c.claimed),
				list.html, effect.dashboard_more(c.listed - 50, 'SELECT * FROM effect.open_effects ORDER BY since;')) END
	  FROM c, list;
	END;
COMMENT ON FUNCTION effect.dashboard_effects() IS 'dashboard: effects that have not ended, unknown ones first, oldest first';

-- Each small chart has a scale of its own: a few fenced writes must show beside
-- many thousand grants. The number beside it is the last day's.
CREATE FUNCTION effect.dashboard_counters(of_kind text) RETURNS text
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	WITH shown (kind, place, label, counters) AS (VALUES
		('job', 1, 'granted', '{granted}'::text[]), ('job', 2, 'finished', '{finished}'), ('job', 3, 'failed', '{failed}'),
		('job', 4, 'turned away', '{held,coalesced,queued,saturated,overlapped,already_ran,cooling_down,paused,quarantined}'),
		('job', 5, 'lease taken', '{stolen,expired,revoked}'), ('job', 6, 'fenced', '{fenced}'),
		('action', 1, 'attempts', '{go}'), ('action', 2, 'completed', '{completed}'), ('action', 3, 'applied', '{applied}'),
		('action', 4, 'duplicates', '{duplicates}'), ('action', 5, 'busy', '{busy}'),
		('action', 6, 'refused', '{blocked,unapproved,mismatch,closed,quarantined}'),
		('action', 7, 'fenced', '{fenced}'), ('action', 8, 'unknown', '{lost}')
	), day AS (
		SELECT pg_catalog.date_trunc('hour', pg_catalog.clock_timestamp(), 'UTC') - '23 hours'::interval AS begins
	), moved AS MATERIALIZED (
		SELECT c.name, s.place, CASE WHEN c.hour >= day.begins
				THEN LEAST(EXTRACT(epoch FROM c.hour - day.begins) / 3600, 23)::integer ELSE -1 END AS hour,
			   pg_catalog.sum(c.n) AS n
		  FROM day, effect.counters c JOIN shown s ON s.kind = c.kind AND c.counter = ANY (s.counters)
		 WHERE c.kind = of_kind GROUP BY 1, 2, 3
	), names AS MATERIALIZED (
		SELECT m.name, pg_catalog.row_number() OVER (ORDER BY
				COALESCE(pg_catalog.sum(m.n) FILTER (WHERE m.hour >= 0), 0) DESC, pg_catalog.sum(m.n) DESC, m.name) AS place
		  FROM moved m GROUP BY m.name
	), hours AS (
		SELECT n.place AS unit, m.place, m.hour, m.n FROM moved m JOIN names n ON n.name = m.name WHERE n.place <= 20
		UNION ALL
		SELECT 0, m.place, m.hour, pg_catalog.sum(m.n) FROM moved m GROUP BY m.place, m.hour
	), cells AS (
		SELECT h.unit, h.place, COALESCE(pg_catalog.sum(h.n) FILTER (WHERE h.hour >= 0), 0) AS lately, pg_catalog.sum(h.n) AS ever,
			   pg_catalog.string_agg(pg_catalog.format('M%s 24v-%2$sh4v%2$sz', h.hour * 5,
				GREATEST(pg_catalog.round(22 * h.n / GREATEST(h.most, 4), 1), 2)), '' ORDER BY h.hour) FILTER (WHERE h.hour >= 0 AND h.n > 0) AS path
		  FROM (SELECT x.*, pg_catalog.max(x.n) FILTER (WHERE x.hour >= 0) OVER (PARTITION BY x.unit, x.place) AS most
				  FROM hours x) AS h GROUP BY h.unit, h.place
	), units AS (
		SELECT u.place AS unit, COALESCE(effect.dashboard_name(u.name), 'all ' || of_kind || 's') AS name,
			   pg_catalog.string_agg(pg_catalog.format('<td data-l="%s"%s>%s</td>', s.label, CASE WHEN c.ever IS NULL THEN ' class="none"' END,
				CASE WHEN c.ever IS NULL THEN '0' ELSE pg_catalog.format('<b>%s</b><svg class="spark" viewBox="0 0 120 24" '
					|| 'preserveAspectRatio="none" role="img" aria-label="%s by the hour"><path d="%s"/></svg><span class="sub">%s in all</span>',
					effect.dashboard_number(c.lately), s.label, c.path, effect.dashboard_number(c.ever)) END), '' ORDER BY s.place) AS tds
		  FROM (SELECT n.place, n.name FROM names n WHERE n.place <= 20 UNION ALL SELECT 0, NULL) AS u
		  JOIN shown s ON s.kind = of_kind
		  LEFT JOIN cells c ON c.unit = u.place AND c.place = s.place
		 GROUP BY u.place, u.name
	)
	SELECT CASE WHEN (SELECT pg_catalog.count(*) FROM names) = 0
			THEN pg_catalog.format(E'<h3>%ss</h3><p class="empty">Nothing has been counted for any %1$s yet.</p>\n', of_kind)
			ELSE pg_catalog.format(E'<h3>%1$ss</h3><table class="grid"><thead><tr><th>%1$s</th>%2$s</tr></thead><tbody>%3$s</tbody></table>%4$s\n',
				of_kind, (SELECT pg_catalog.string_agg('<th>' || s.label || '</th>', '' ORDER BY s.place) FROM shown s WHERE s.kind = of_kind),
				(SELECT pg_catalog.string_agg('<tr><td>' || u.name || '</td>' || u.tds || '</tr>', E'\n' ORDER BY u.unit) FROM units u),
				effect.dashboard_more((SELECT pg_catalog.count(*) - 20 FROM names),
					pg_catalog.format('SELECT * FROM effect.%s_stats;', of_kind))) END;
	END;
COMMENT ON FUNCTION effect.dashboard_counters(text) IS
	'dashboard: counters of jobs or of actions, by the hour over the last day, the busiest first';

-- The bar ends at the longest of max, lease and interval, unless the interval is
-- so long that nothing would be seen: then it is left out.
CREATE FUNCTION effect.dashboard_runs() RETURNS text
	LANGUAGE sql STABLE
	BEGIN ATOMIC
	WITH j AS MATERIALIZED (
		SELECT s.job_key, s.every, s.lease_for, s.runs, s.p50, s.p99, s.max, s.last_finished, s.overdue, s.paused,
			   EXTRACT(epoch FROM s.p50) AS e50, EXTRACT(epoch FROM s.p99) AS e99, EXTRACT(epoch FROM s.max) AS emax,
			   EXTRACT(epoch FROM s.lease_for) AS lease, EXTRACT(epoch FROM s.every) AS due,
			   s.p99 > s.every AS over_every, s.p99 > s.lease_for AS over_lease
		  FROM effect.job_stats s WHERE s.p50 IS NOT NULL OR s.overdue
	), scaled AS (
		SELECT j.*, 300 / GREATEST(1.03 * GREATEST(j.emax, j.lease,
				CASE WHEN j.due <= 4 * GREATEST(j.emax, j.lease) THEN j.due END), 0.000001) AS scale,
			   pg_catalog.row_number() OVER (ORDER BY COALESCE(j.over_every, false) DESC, COALESCE(j.over_lease, false) DESC,
				j.overdue DESC, j.e99 / NULLIF(LEAST(j.lease, j.due), 0) DESC NULLS LAST, j.job_key) AS place
		  FROM j
	), list AS (
		SELECT pg_catalog.string_agg(pg_catalog.format('<tr><td>%s</td><td class="wide"><svg class="bar" viewBox="0 0 300 22" '
				|| 'preserveAspectRatio="none" aria-hidden="true"><rect class="track" y="4" width="300" height="14" rx="2"/>'
				|| '<rect class="%s" y="4" width="%s" height="14"/><rect class="p50" y="4" width="%s" height="14"/>%s%s%s</svg></td>'
				|| '<td data-l="p50" class="n">%s</td><td data-l="p99" class="n">%s</td><td data-l="max" class="n">%s</td>'
				|| '<td data-l="lease" class="n">%s</td><td data-l="interval" class="n">%s</td><td data-l="runs" class="n">%s</td><td>%s</td></tr>',
				effect.dashboard_name(r.job_key), CASE WHEN r.over_every OR r.over_lease THEN 'over' ELSE 'p99' END,
				COALESCE(pg_catalog.round(r.e99 * r.scale, 1), 0), COALESCE(pg_catalog.round(r.e50 * r.scale, 1), 0),
				'<path class="max" d="M' || pg_catalog.round(r.emax * r.scale, 1) || ' 4v14"/>',
				'<path class="lease" d="M' || pg_catalog.round(r.lease * r.scale, 1) || ' 0v22"/>',
				CASE WHEN r.due * r.scale <= 300 THEN '<path class="every" d="M' || pg_catalog.round(r.due * r.scale, 1) || ' 0v22"/>' END,
				effect.dashboard_span(r.p50), effect.dashboard_span(r.p99), effect.dashboard_span(r.max),
				effect.dashboard_span(r.lease_for), effect.dashboard_span(r.every), r.runs,
				CASE WHEN r.over_every OR r.over_lease OR r.overdue THEN '<span class="tag wrap warning">' || pg_catalog.concat_ws(', ',
						CASE WHEN r.over_every THEN 'p99 over interval' END, CASE WHEN r.over_lease THEN 'p99 over lease' END,
						CASE WHEN r.overdue THEN 'overdue' END) || '</span>'
					WHEN r.paused THEN '<span class="tag info">paused</span>' ELSE '<span class="tag fine">within</span>' END),
				E'\n' ORDER BY r.place) AS html
		  FROM (SELECT s.* FROM scaled s ORDER BY s.place LIMIT 30) AS r
	)
	SELECT '<section id="runs"><div class="head"><h2>Run times</h2>' || CASE WHEN list.html IS NULL
			THEN E'</div><p class="empty">No run has come to its end yet.</p></section>\n'
			ELSE pg_catalog.format(E'<p>of the last 200 runs of each job: p50 strong, p99 faint (amber: over a limit), max a thin line; '
				|| 'the lease a solid tick, the interval a dashed one if it is near</p></div>'
				|| E'\n<table><thead><tr><th>job</th><th></th><th class="n">p50</th><th class="n">p99</th><th class="n">max</th>'
				|| E'<th class="n">lease</th><th class="n">interval</th><th class="n">runs</th><th></th></tr></thead>'
				|| E'<tbody>%s</tbody></table>%s</section>\n', list.html,
				effect.dashboard_more((SELECT pg_catalog.count(*) - 30 FROM j), 'SELECT * FROM effect.job_stats;')) END
	  FROM list;
	END;
COMMENT ON FUNCTION effect.dashboard_runs() IS 'dashboard: run times against lease and interval, those over a limit first';

-- Compiling plans as wide as these costs seconds and gains none of them back.
CREATE FUNCTION effect.dashboard() RETURNS text
	LANGUAGE sql STABLE SET jit = off
	BEGIN ATOMIC
	SELECT E'<!DOCTYPE html>\n<html lang="en"><head><meta charset="'
		|| CASE pg_catalog.pg_client_encoding() WHEN 'UTF8' THEN 'utf-8' WHEN 'SQL_ASCII' THEN 'utf-8' ELSE pg_catalog.replace(
			pg_catalog.replace(pg_catalog.lower(pg_catalog.pg_client_encoding()::text), 'win', 'windows-'), '_', '-') END
		|| E'">\n<meta http-equiv="Content-Security-Policy" content="default-src ''none''; style-src ''unsafe-inline''; img-src data:">\n'
		|| E'<meta name="viewport" content="width=device-width, initial-scale=1">\n<meta name="referrer" content="no-referrer">\n'
		|| '<title>effect: ' || effect.escape_html(pg_catalog.current_database()) || E'</title>\n<link rel="icon" href="data:,">\n<style>'
		|| effect.dashboard_style() || E'</style></head>\n<body><header><h1>effect on '
		|| effect.dashboard_name(pg_catalog.current_database()) || E'</h1>\n<p class="facts"><span>written <b>'
		|| effect.escape_html(pg_catalog.to_char(n.now, 'Dy YYYY-MM-DD HH24:MI:SS TZ')) || '</b> ('
		|| effect.escape_html(pg_catalog.current_setting('TimeZone')) || ')</span><span>PostgreSQL '
		|| effect.escape_html(pg_catalog.current_setting('server_version')) || ', effect '
		|| effect.escape_html((SELECT x.extversion FROM pg_catalog.pg_extension x WHERE x.extname = 'effect')) || '</span>'
		|| CASE WHEN pg_catalog.pg_is_in_recovery() THEN '<span>read from a standby</span>' ELSE '' END || E'</p></header>\n<main>'
		|| effect.dashboard_attention() || effect.dashboard_leases() || effect.dashboard_effects()
		|| '<section id="counters"><div class="head"><h2>Counters</h2><p>large: the last 24 hours, an hour a column, each chart to '
		|| E'a scale of its own</p></div>\n'
		|| effect.dashboard_counters('job') || effect.dashboard_counters('action') || E'</section>\n'
		|| effect.dashboard_runs()
		|| '</main><footer><p>A snapshot: it does not renew itself. Ages are as of the time above. A click on a statement selects it whole.'
		|| E'</p></footer></body></html>\n'
	  FROM (SELECT pg_catalog.clock_timestamp() AS now) AS n;
	END;
COMMENT ON FUNCTION effect.dashboard() IS
	'one self-contained page of HTML: what needs a person, leases, open effects, counters, run times';
