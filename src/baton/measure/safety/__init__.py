"""Safety on the trace: taint, blast radius and the paired clean replay."""
