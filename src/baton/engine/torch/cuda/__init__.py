"""Llamas on a GPU: few launches a step, keys read where they are."""
