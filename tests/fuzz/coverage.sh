#!/usr/bin/env bash
# How much of the code the corpora reach: tests/fuzz/coverage.sh REPLAY CORPUS DIR [UNIT [SIM]]
# The programs are built with MODE=cov (`make coverage`); UNIT and SIM, where given, add what the unit tests and 100 simulated worlds reach.
# Prints the lines reached of the folders that read what others send, and the lines that are not, file by file.
set -eu
replay=$1 corpus=$2 dir=$3 unit=${4:-} sim=${5:-}
folders='lib/(rpc|wire|lease|store|consensus|service)/'

mkdir -p "$dir"
rm -f "$dir"/*.profraw
LLVM_PROFILE_FILE=$dir/replay.profraw "$replay" "$corpus" >/dev/null
[ -z "$unit" ] || LLVM_PROFILE_FILE=$dir/unit-%m.profraw "$unit" >/dev/null
[ -z "$sim" ] || LLVM_PROFILE_FILE=$dir/sim.profraw "$sim" --from 1 --seeds "${SEEDS:-100}" >/dev/null
llvm-profdata merge -o "$dir/all.profdata" "$dir"/*.profraw
llvm-cov export -format=lcov -instr-profile "$dir/all.profdata" "$replay" ${unit:+-object "$unit"} ${sim:+-object "$sim"} >"$dir/lines.lcov"

# lines.lcov: SF:file, DA:line,count. Of a line that two programs have, the larger count counts.
awk -F'[:,]' -v want="$folders" '
	/^SF:/ { f = substr($0, 4); sub(/^.*\/lib\//, "lib/", f); take = f ~ want && f !~ /\.h$/ && f !~ /pb-c/ }
	/^DA:/ && take { if (!((f, $2) in n)) { n[f, $2] = 0; line[f] = line[f] " " $2 } if ($3 > n[f, $2]) n[f, $2] = $3 }
	END {
		for (f in line) {
			k = split(line[f], l, " "); hit = 0; missed = ""; from = 0; last = 0
			for (i = 1; i <= k; i++) {
				if (n[f, l[i]] > 0) { hit++; if (from) missed = missed " " (from == last ? from : from "-" last); from = 0; continue }
				if (!from) from = l[i]
				last = l[i]
			}
			if (from) missed = missed " " (from == last ? from : from "-" last)
			folder = f; sub(/\/[^\/]*$/, "", folder)
			all[folder] += k; reached[folder] += hit
			printf "file %s %d of %d lines (%.1f %%)%s%s\n", f, hit, k, 100 * hit / k, missed == "" ? "" : "; not:", missed
		}
		for (d in all) printf "folder %s: %d of %d lines (%.1f %%)\n", d, reached[d], all[d], 100 * reached[d] / all[d]
	}' "$dir/lines.lcov" | sort | sed -e 's/^file //' -e 's/^folder /= /'
