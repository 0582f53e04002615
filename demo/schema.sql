-- What the shop needs for the night with effect.
\set ON_ERROR_STOP on
SET client_min_messages = warning;

CREATE EXTENSION effect;
CREATE EXTENSION plpython3u;    -- PostgreSQL has no HTTP client of its own

-- Nothing is granted to PUBLIC: each role is given the set it needs.
SELECT effect.grant_worker('app') \g /dev/null
SELECT effect.grant_operator('ops') \g /dev/null
SELECT effect.grant_monitor('watch') \g /dev/null
SELECT effect.grant_approver('approver') \g /dev/null
GRANT SELECT ON invoice TO approver;
-- For the report: what became of the approvals, without their terms.
GRANT SELECT (effect_key, approver, revoked_at, consumed_at) ON effect.approval TO watch;

-- A receipt can only be written by a transaction that holds the job's fence, and never
-- under an older token than the one it was written under.
SELECT effect.require_fence('receipt', 'nightly') \g /dev/null
SELECT effect.keep_token_monotonic('receipt', 'fencing_token') \g /dev/null

-- Where the far side listens tonight; written as the night begins.
CREATE TABLE far_side (port integer NOT NULL);
GRANT SELECT, INSERT ON far_side TO ops;

-- The resolver.  sweep calls it about an effect that is unknown, once its settle time has
-- passed: an empty answer of the far side is final by then.  What it raises counts as
-- cannot_tell, and sweep asks again later.  It runs as ops, who registers it below; a
-- superuser owns it, since the language is untrusted.
CREATE FUNCTION look_at_far_side(effect_key uuid, target text, inputs jsonb,
	OUT finding effect.finding, OUT evidence jsonb, OUT response jsonb)
LANGUAGE plpython3u
AS $$
import http.client
import json

port = plpy.execute("SELECT port FROM public.far_side")[0]["port"]
far_side = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
try:
    far_side.request("GET", f"/charges?reference={effect_key}")
    answer = far_side.getresponse()
    if answer.status != 200:
        plpy.error(f"the far side answers {answer.status}")
    charges = json.load(answer)
finally:
    far_side.close()
evidence = json.dumps({"looked_at": "GET /charges", "found": charges})
if charges:
    return "happened", evidence, json.dumps({"charge": charges[0]["charge"]})
return "did_not_happen", evidence, None
$$;
REVOKE ALL ON FUNCTION look_at_far_side(uuid, text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION look_at_far_side(uuid, text, jsonb) TO ops;

-- The actions.  settle is above the longest time for which a request can be under way: how
-- long a run may sit on a `go` (SEND_WITHIN in common.py) and the far side's own bound.
SET ROLE ops;
-- A firing a night; a second scheduler that fires it meanwhile is told coalesced.
SELECT effect.set_job('nightly', every => '1 day', overlap => 'coalesce', usable_by => '{app}') \g /dev/null
SELECT effect.set_action('charge', on_unknown => 'check', resolver => 'public.look_at_far_side',
	settle => '3 seconds', usable_by => '{app}') \g /dev/null
-- The same for large amounts (LARGE in common.py), which somebody must approve first.
SELECT effect.set_action('charge-large', on_unknown => 'check', resolver => 'public.look_at_far_side',
	settle => '3 seconds', usable_by => '{app}',
	approvals_required => 1, approve_within => '10 minutes') \g /dev/null
