"""kopf keeps nothing on objects, and makes no copy of them."""

import kopf

from lockstep.controller import handlers


async def test_kopf_compares_nothing_and_keeps_nothing_on_an_object() -> None:
    settings = kopf.OperatorSettings()
    await handlers.startup(settings)
    persistence = settings.persistence
    body = kopf.Body({"metadata": {"annotations": {"mine": "1"}}, "spec": {"nodes": 2}, "status": {"attempt": 1}})
    patch = kopf.Patch()
    essence = persistence.diffbase_storage.build(body=body)
    assert essence == {}
    persistence.diffbase_storage.store(body=body, patch=patch, essence=essence)
    persistence.progress_storage.purge(key="any", body=body, patch=patch)
    persistence.progress_storage.touch(body=body, patch=patch, value="now")
    assert persistence.diffbase_storage.fetch(body=body) is None
    assert persistence.progress_storage.fetch(key="any", body=body) is None
    assert not patch
