"""What teams work on: exact games with solvers, the dynamic Dec-POMDP contract, and tasks with verifiers."""
