#!/bin/sh
# Trains the demo model from nothing in two pieces of under nine minutes: piece.sh 1 OUT, then piece.sh 2 OUT.
# What is needed in between (weights and optimizer) stays in build/demo of the source tree; OUT gets the weights in
# shards under 16 MiB, the small files of the model in rest.tgz, and the log.
set -eu
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")"
python=${PYTHON:-python3} work=../../build/demo
mkdir -p "$work"
[ -f "$work/tok/tokenizer.json" ] || "$python" vocab.py "$work/tok"

train() {
	"$python" train.py --tokenizer "$work/tok" --steps 7560 "$@"
}

keep() {
	cp "$1"/model/model-*.safetensors "$1/train.log" "$out/"
	tar -C "$1/model" -czf "$out/rest.tgz" --exclude '*.safetensors' .
}

case $1 in
1)
	rm -rf "$work/a" "$work/state.pt"
	train --out "$work/a" --state "$work/state.pt" --until 3930 --minutes 8.6
	keep "$work/a"
	;;
2)
	rm -rf "$work/b"
	if [ -f "$work/state.pt" ]; then
		train --out "$work/b" --state "$work/state.pt" --minutes 8.0
	else
		train --out "$work/b" --resume "$work/a/model" --start "${START:-3930}" --minutes 8.0
	fi
	keep "$work/b"
	train --out "$work/b" --resume "$work/b/model" --start 7560 --measure 32
	cp "$work/b/heldout.json" "$work/b/train.log" "$out/"
	;;
*)
	echo "piece.sh: 1 or 2 is wanted, not $1" >&2
	exit 2
	;;
esac
