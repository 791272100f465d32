"""Tokenizer, chat template, stop strings, the channels of an answer."""
