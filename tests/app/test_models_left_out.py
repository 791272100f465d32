"""A model that cannot be offered, because what is noted of it makes no sense, is named once on the page."""

from app.models.state.library import ModelLibrary
from engine.protocol import operations
from tests.kit.operations import ScriptedOperations


def test_it_is_told_once(qapp):
    engine = ScriptedOperations()
    library = ModelLibrary(engine)
    told = []
    library.failed.connect(told.append)
    for _ in range(2):
        library.refresh()
        engine.answer(operations.LIST_MODELS, operations.ModelList(left_out=["…/kvasir.json is not valid JSON."]))
    assert told == ["…/kvasir.json is not valid JSON."]
    library.close_down()
