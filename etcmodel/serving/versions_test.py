import asyncio
import json
import logging
import os
import shutil
import tempfile
import threading
from unittest import mock

import tensorflow as tf

from etcmodel.errors import UserError
from etcmodel.serving import versions
from testing import served_models

_BODY = json.dumps({"instances": [{"texts": ["ab"]}]}).encode()


async def ask(model):
    """Returns the length of "ab" times the factor of the model's version."""
    answer = json.loads(await model.predict(_BODY, lambda request: None))
    return answer["predictions"][0]["lengths"][0]


class VersionsTest(tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.stored = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.stored)
        for version in (1, 2, 3):
            path = os.path.join(cls.stored, str(version))
            served_models.write_model(path, factor=10**version)

    def setUp(self):
        super().setUp()
        self.root = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.object(versions, "_log"))

    def path(self, *names):
        return os.path.join(self.root, *map(str, names))

    def add(self, *numbers):
        """Adds versions; each appears with all its files at once."""
        for number in numbers:
            copy = f"{self.root}.copy"
            shutil.copytree(os.path.join(self.stored, str(number)), copy)
            os.rename(copy, self.path(number))

    def damage(self, number):
        with open(self.path(number, "saved_model.pb"), "wb") as stream:
            stream.write(b"damaged")

    def make(self, number=1, timeout=0.0):
        return versions.Versions(
            self.root,
            number,
            versions.Limits(timeout=timeout),
            lambda task: served_models.REQUEST,
        )

    def run_with(self, test, **options):
        """Calls the coroutine function `test` with `Versions`; closes them."""

        async def run():
            models = self.make(**options)
            await test(models)
            await asyncio.wait_for(models.close(), 30)

        asyncio.run(run())

    def test_the_newest_are_served(self):
        self.add(1, 2, 3)

        async def test(models):
            await models.update()
            self.assertEqual([2, 3], models.available)
            self.assertEqual(
                {2: "AVAILABLE", 3: "AVAILABLE"}, dict(models.states)
            )
            self.assertIsNone(models.get(1))
            self.assertEqual("counting", models.task)
            for version, factor in ((2, 100), (3, 1000), (None, 1000)):
                self.assertEqual(2 * factor, await ask(models.get(version)))
                self.assertEqual(
                    version or 3, models.version_of(models.get(version))
                )

        self.run_with(test, number=2)

    def test_an_old_version_answers_its_requests_before_it_is_unloaded(self):
        self.add(1)

        async def test(models):
            await models.update()
            # The request still waits for a batch when version 2 appears.
            asked = asyncio.create_task(ask(models.get()))
            await asyncio.sleep(0)
            self.add(2)
            updating = asyncio.create_task(models.update())
            while models.states.get(1) != "UNLOADING":
                await asyncio.sleep(0.01)
            self.assertFalse(asked.done())
            self.assertEqual([2], models.available)
            self.assertEqual(20, await asked)
            await updating
            self.assertEqual({1: "END", 2: "AVAILABLE"}, models.states)

        self.run_with(test, timeout=3.0)

    def test_no_request_is_lost_while_versions_change(self):
        self.add(1)

        async def test(models):
            await models.update()
            found, is_done = [], False

            async def keep_asking():
                while not is_done:
                    found.append(await ask(models.get()))

            watching = asyncio.create_task(models.watch(0.02))
            asking = [asyncio.create_task(keep_asking()) for _ in range(4)]
            for version in (2, 3):
                self.add(version)
                while models.available != [version]:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
            is_done = True
            await asyncio.gather(*asking)
            watching.cancel()
            self.assertEqual([20, 200, 2000], sorted({*found}))

        self.run_with(test)

    def test_a_broken_version_leaves_the_old_one(self):
        self.add(1)

        async def test(models):
            await models.update()
            first = models.get()
            self.add(2)
            self.damage(2)
            with mock.patch.object(versions, "exported") as exported:
                exported.find_versions.side_effect = OSError("unreachable")
                watching = asyncio.create_task(models.watch(0.01))
                await asyncio.sleep(0.05)
            # After the error, it still looks for versions.
            while 2 not in models.errors:
                await asyncio.sleep(0.01)
            self.assertIs(first, models.get())
            self.assertEqual({1: "AVAILABLE", 2: "END"}, models.states)
            self.assertIn("saved_model.pb", models.errors[2])
            self.assertEqual(20, await ask(models.get()))
            # A version is served once it is repaired.
            shutil.rmtree(self.path(2))
            self.add(2)
            while models.available != [2]:
                await asyncio.sleep(0.01)
            watching.cancel()
            self.assertEqual({}, models.errors)
            self.assertEqual(200, await ask(models.get()))

        self.run_with(test)

    def test_a_version_that_fails_is_not_loaded_again_and_again(self):
        self.add(1, 2)
        self.damage(2)

        async def test(models):
            load = mock.patch.object(models, "_load", side_effect=models._load)
            with load as load:
                for _ in range(3):
                    await models.update()
            self.assertEqual(2, load.call_count)
            # An older version is served at the start, too.
            self.assertEqual([1], models.available)

        self.run_with(test)

    def test_removing_a_version_brings_back_the_one_before(self):
        self.add(1, 2)

        async def test(models):
            await models.update()
            self.assertEqual([2], models.available)
            shutil.rmtree(self.path(2))
            await models.update()
            self.assertEqual([1], models.available)
            first = models.get()
            # If all versions are removed, the last one keeps answering.
            shutil.rmtree(self.path(1))
            with self.assertRaisesRegex(UserError, "has none in directories"):
                await models.update()
            self.assertIs(first, models.get())

        self.run_with(test)

    def test_a_slow_directory_delays_no_request(self):
        self.add(1, 2)
        self.damage(2)

        async def test(models):
            await models.update()
            # The directory answers only after the request is answered.
            is_answered = threading.Event()

            def wait(*args):
                self.assertTrue(is_answered.wait(20))
                return {1: self.path(1), 2: self.path(2)}

            for name in ("exported.find_versions", "_list_files"):
                is_answered.clear()
                with mock.patch(f"{versions.__name__}.{name}", wait):
                    updating = asyncio.create_task(models.update())
                    await asyncio.sleep(0)
                    self.assertEqual(20, await ask(models.get()))
                    is_answered.set()
                    await updating

        self.run_with(test)

    def test_no_version_can_be_loaded(self):
        self.add(1)
        self.damage(1)

        async def test(models):
            with self.assertRaisesRegex(UserError, "1 cannot be loaded"):
                await models.update()
            self.assertIsNone(models.get())

        self.run_with(test)

    def test_requests_that_fail_in_the_model(self):
        self.add(1)
        body = json.dumps({"instances": [{"texts": ["bad"]}]}).encode()

        async def test(models):
            await models.update()
            model = models.get()
            with self.assertRaisesRegex(
                tf.errors.InvalidArgumentError, "The text is bad"
            ):
                await model.predict(body, lambda request: None)
            with self.assertRaisesRegex(UserError, "is not JSON"):
                await model.predict(b"", lambda request: None)
            # A client disconnects before its answer.
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(ask(model), 0.05)
            self.assertEqual(20, await ask(model))

        self.run_with(test, timeout=0.2)


if __name__ == "__main__":
    logging.disable()
    tf.test.main()
