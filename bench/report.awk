# The tables of bench/run, from bench/works and the lines that measure() wrote.
#
# A ratio is the median of the rounds' own ratios, ours by the rival's that ran just before
# it: what slows the machine for a while slows both.  Behind it, the lowest and the highest.

function median(list, n,    i, j, t) {
	for (i = 2; i <= n; i++)
		for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
	low = list[1]; high = list[n]
	return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}

# The median of one column of a side's rounds; low and high are left behind.
function middle(name, clients, side, column,    r, n, list) {
	n = 0
	for (r = 1; r <= last_round; r++)
		if ((name, clients, side, r, column) in value) list[++n] = value[name, clients, side, r, column]
	return n ? median(list, n) : -1
}

function least(name, clients, side, column) { middle(name, clients, side, column); return low }

function ratio(name, clients, rival, ours,    r, n, list) {
	n = 0
	for (r = 1; r <= last_round; r++)
		if ((name, clients, rival, r, RATE) in value && (name, clients, ours, r, RATE) in value &&
			value[name, clients, rival, r, RATE] > 0)
			list[++n] = value[name, clients, ours, r, RATE] / value[name, clients, rival, r, RATE]
	return n ? median(list, n) : -1
}

function rival_name(script) { sub(/\/.*/, "", script); return script == "ours" ? "one by one" : script }
function figure(x) { return x < 0 ? "-" : x >= 100 ? sprintf("%.0f", x) : sprintf("%.1f", x) }
function verdict(met) { return met ? "met" : "NOT MET" }

function row(work, clients, rival, a, b, r, spread, target, met) {
	printf "%-34s %7s  %-15s %9s %9s  %6s %-13s %-9s %s\n", work, clients, rival, a, b, r, spread, target, met
}

function compared(name, clients, i,    a, b, r) {
	if (target[i] ~ /^</) {
		b = middle(name, clients, ours[i], LATENCY)
		if (b >= 0) row(name, clients, "-", "-", sprintf("%.2f ms", b), "-", sprintf("(%.2f-%.2f)", low, high),
			target[i] " ms", verdict(b < substr(target[i], 2) + 0))
		return
	}
	if (rival[i] == "-") {
		b = middle(name, clients, ours[i], RATE)
		if (b >= 0) row(name, clients, "-", "-", figure(b), "-", sprintf("(%s-%s)", figure(low), figure(high)), "-", "-")
		return
	}
	r = ratio(name, clients, rival[i], ours[i])
	if (r < 0) return
	spread = sprintf("(%.2f-%.2f)", low, high)
	a = middle(name, clients, rival[i], RATE)
	b = middle(name, clients, ours[i], RATE)
	row(name, clients, rival_name(rival[i]), figure(a), figure(b), sprintf("%.2f", r), spread,
		target[i] == "" ? "-" : ">= " target[i], target[i] == "" ? "-" : verdict(r >= target[i]))
}

# The server writes a little by itself, so it is the quietest round that tells.
function wrote_nothing(name, clients, i,    x, w) {
	x = least(name, clients, ours[i], XIDS)
	w = least(name, clients, ours[i], WAL)
	if (x < 0) return
	row(name ": xids a call", clients, "-", "-", sprintf("%.4f", x), "-", "", "0", verdict(x < 0.0005))
	row(name ": WAL bytes a call", clients, "-", "-", sprintf("%.2f", w), "-", "", "0", verdict(w < 1))
}

function costs(name, clients, side,    up, hot) {
	up = middle(name, clients, side, UPDATES)
	if (up < 0) return
	hot = up > 0 ? sprintf("%.1f %%", 100 * middle(name, clients, side, HOT) / up) : "-"
	printf "%-34s %7s  %-24s %9.0f %7.3f %7.2f %7.2f %8s\n", name, clients, side,
		middle(name, clients, side, WAL), middle(name, clients, side, FPI), middle(name, clients, side, XIDS),
		middle(name, clients, side, DEAD), hot
}

function header() {
	row("work", "clients", "rival", "rival/s", "ours/s", "ratio", "(spread)", "target", "")
}

function costs_header() {
	printf "\n%-34s %7s  %-24s %9s %7s %7s %7s %8s\n", "an effect costs", "clients", "side", "WAL bytes", "images", "xids", "dead", "HOT"
}

# How the rate at a size compares with that at the first one, ours beside the limit's.
function flatness(name, clients, side, first, size) {
	return middle(name "@" size, clients, side, RATE) / middle(name "@" first, clients, side, RATE)
}

function grown(base, clients, i,    k, first, n, a, b) {
	n = 0
	for (k = 1; k <= names; k++) {
		split(name_of[k], part, "@")
		if (part[1] != base || middle(name_of[k], clients, ours[i], RATE) < 0) continue
		if (++n == 1) { first = part[2]; continue }
		a = flatness(base, clients, rival[i], first, part[2])
		b = flatness(base, clients, ours[i], first, part[2])
		row(base " " part[2] ":" first, clients, rival_name(rival[i]), sprintf("%.2f", a), sprintf("%.2f", b),
			sprintf("%.2f", b / a), "", ">= 0.95", verdict(b / a >= 0.95))
	}
}

BEGIN {
	RATE = 5; LATENCY = 6; EFFECTS = 7; WAL = 8; FPI = 9; XIDS = 10; UPDATES = 11; HOT = 12; DEAD = 13
}

FNR == 1 { file++ }

file == 1 && !/^#/ {
	split($0, f, "|")
	work[++lines] = f[1]; rival[lines] = f[3]; ours[lines] = f[5]; target[lines] = f[7]; silent[lines] = f[8]
}

file == 2 {
	split($0, f, "\t")
	if (!(f[1] in seen)) { seen[f[1]]; name_of[++names] = f[1] }
	if (!((f[1], f[2]) in at)) { at[f[1], f[2]]; clients_at[f[1], ++counts[f[1]]] = f[2] }
	if (!((f[1], f[4]) in side_seen)) { side_seen[f[1], f[4]]; side_of[f[1], ++sides[f[1]]] = f[4] }
	if (f[3] > last_round) last_round = f[3]
	for (c = RATE; c <= DEAD; c++)
		value[f[1], f[2], f[4], f[3], c] = c <= EFFECTS ? f[c] : f[c] / (f[EFFECTS] ? f[EFFECTS] : 1)
}

END {
	header()
	for (k = 1; k <= names; k++) {
		base = name_of[k]; sub(/@.*/, "", base)
		for (i = 1; i <= lines; i++) {
			if (work[i] != base) continue
			for (c = 1; c <= counts[name_of[k]]; c++) compared(name_of[k], clients_at[name_of[k], c], i)
			if (silent[i] != "")
				for (c = 1; c <= counts[name_of[k]]; c++) wrote_nothing(name_of[k], clients_at[name_of[k], c], i)
		}
	}
	if (report == "growth") {
		print "\nrate on the larger ledger by rate on the smallest: the limit's, ours, and ours by the limit's"
		for (i = 1; i <= lines; i++)
			if (work[i] ~ /^(begin-complete|duplicate)$/ && rival[i] ~ /^limit/)
				for (c = 1; c <= 64; c++) grown(work[i], c, i)
	}
	costs_header()
	for (k = 1; k <= names; k++)
		for (c = 1; c <= counts[name_of[k]]; c++)
			for (s = 1; s <= sides[name_of[k]]; s++) costs(name_of[k], clients_at[name_of[k], c], side_of[name_of[k], s])
}
