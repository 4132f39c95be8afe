#!/bin/sh
# What `make train` runs until training lands: a team works on a task; its trace is checked, shown,
# replayed without asking any model, and forked at one message.
set -eu
out=${1:-runs/first}
echo "Training has not landed yet: this runs a team, checks and shows its trace, replays and forks it."
baton run shard-sum --topology centralized --policy reference --out "$out"
baton validate "$out"
echo
baton show "$out"
echo
echo "Replayed from its own answers:"
baton replay "$out"
echo
echo "Forked, with worker2's answer replaced by 0:"
baton fork "$out" --at worker2#2 --replace 0 --out "$out/fork"
