"""Advice about models that are not loaded: whether they fit, how fast they are, which to take, what drafts for them."""
