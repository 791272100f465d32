"""Operations on models: plain functions of a context, a request and what is called with events."""
