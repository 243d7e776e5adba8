import io
import os
import sys
import tempfile
from unittest import mock

import tensorflow as tf

import etcmodel
from etcmodel import models
from etcmodel.engine.progress import Reporter
from etcmodel.errors import UserError
from etcmodel.estimators import sources
from testing import small_berts

_NAME = "owner/small-bert"


class SourcesTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = tempfile.mkdtemp(dir=self.get_temp_dir())
        cache = os.path.join(self.folder, "cache")
        self.enterContext(mock.patch.dict(os.environ, XDG_CACHE_HOME=cache))

    def _bert(self, *names):
        folder = os.path.join(self.folder, *names)
        os.makedirs(folder)
        small_berts.make_bert(folder)
        return folder

    def test_lifts_a_directory_once(self):
        source, out = self._bert("bert"), io.StringIO()
        found = sources.find(source, Reporter("lines", out))
        self.assertIn(f"of {source} into {found}", out.getvalue())
        config = models.EtcConfig.from_json_file(
            os.path.join(found, "etc_config.json")
        )
        self.assertEqual("paragraph", config.absolute_positions)
        self.assertTrue(config.question_words_in_global)
        # A second call and a call with lifted weights lift nothing.
        again = io.StringIO()
        for path in (source, found):
            self.assertEqual(
                found, sources.find(path, Reporter("lines", again))
            )
        self.assertEmpty(again.getvalue())
        with open(os.path.join(source, "new"), "w"):
            pass
        self.assertNotEqual(found, sources.find(source, Reporter("quiet")))

    def test_other_sources_are_returned_unchanged(self):
        for source in ("tiny", self.folder, "gs://bucket/x", "a/b/c"):
            self.assertEqual(source, sources.find(source))

    def test_name_in_the_hub(self):
        """Finds a model in a local copy of the hub's cache, without network."""
        commit = "0123456789abcdef0123456789abcdef01234567"
        repository = ("hub", "models--owner--small-bert")
        self._bert(*repository, "snapshots", commit)
        refs = os.path.join(self.folder, *repository, "refs")
        os.makedirs(refs)
        for name in ("main", "other"):
            with open(os.path.join(refs, name), "w") as stream:
                stream.write(commit)
        import huggingface_hub

        hub = os.path.join(self.folder, "hub")

        def snapshot(name, **options):
            return download(
                name, cache_dir=hub, local_files_only=True, **options
            )

        download = huggingface_hub.snapshot_download
        with mock.patch.object(huggingface_hub, "snapshot_download", snapshot):
            found = sources.find(_NAME, Reporter("quiet"))
            self.assertTrue(os.path.exists(os.path.join(found, "lift.json")))
            self.assertEqual(found, sources.find(f"{_NAME}@other"))
            model = etcmodel.DocumentClassifier.from_pretrained(_NAME)
            self.assertIn(found, repr(model))
            with self.assertRaisesRegex(
                UserError, "owner/gone is not a direct"
            ):
                sources.find("owner/gone")
        with mock.patch.dict(sys.modules, huggingface_hub=None):
            with self.assertRaisesRegex(
                UserError, r"pip install .etcmodel\[hub\]"
            ):
                sources.find(_NAME)


if __name__ == "__main__":
    tf.test.main()
