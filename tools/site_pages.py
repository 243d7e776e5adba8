"""Adds pages to the documentation's site; a hook of MkDocs (`mkdocs.yml`).

The README is the first page. The pages of the reference have an entry for each
public name, whose text is its docstring, and the flags of all commands.
"""

import ast
import re
from collections.abc import Iterator

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

from etcmodel.cli import command_line
from etcmodel.tasks import registry
from tools.modules import ROOT

# Page -> the file in the repository that it shows.
_FILES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "CITATION.cff": "CITATION.cff",
}
# Page -> title and modules or names in modules. A package that defines
# `__all__` stands for its names, any other module for all public names in it.
REFERENCE = {
    "layers": ("Layers", ("etcmodel.layers",)),
    "models": ("Models", ("etcmodel.models",)),
    "feature_utils": ("Features", ("etcmodel.feature_utils",)),
    "layout": ("Layouts", ("etcmodel.feature_utils.layout",)),
    "text": (
        "Tokenizers and sentences",
        tuple(
            f"etcmodel.feature_utils.text.{name}"
            for name in ("tokenizers", "tokenizer_settings", "sentences")
        ),
    ),
    "attention": (
        "Attention",
        ("etcmodel.ops.attention", "etcmodel.ops.compilation.elementwise_jit"),
    ),
    "checkpoints": ("Checkpoints", ("etcmodel.checkpoints",)),
    "estimators": (
        "Your own documents in Python",
        (
            "etcmodel.estimators.estimators",
            "etcmodel.estimators.estimator.Estimator",
            "etcmodel.estimators.predictors",
            "etcmodel.estimators.results",
            "etcmodel.errors",
        ),
    ),
    "datasets": (
        "Datasets",
        (
            "etcmodel.datasets",
            "etcmodel.readers.records.Format",
            *(
                f"etcmodel.datasets.{name}"
                for name in (
                    *("classification.metrics", "selection"),
                    *("question_answering.predictions", "hotpotqa.predictions"),
                    *("hotpotqa.augmentation", "nq.predictions", "openkp"),
                    *("wikihop", "triviaqa", "narrativeqa.metrics"),
                )
            ),
        ),
    ),
    "pipeline": (
        "Tasks of your own",
        tuple(
            f"etcmodel.pipeline.{name}"
            for name in (
                *("spec.TaskSpec", "spec.Experiment", "spec.Tuned"),
                *("preprocessor.Preprocessor", "preprocessor.EtcPreprocessor"),
                *("preprocessor.Encoded", "preprocessor.Labelled"),
                *("raw_inputs.RawInput", "example_schema.ExampleSchema"),
                *("example_schema.Field", "task_model.TaskModel"),
                *("task_model.AnswerModel", "task_model.EtcTaskModel"),
                "task_model.Term",
            )
        ),
    ),
    "inspection": (
        "Maps and converted models",
        (
            "etcmodel.inspection.map_records.map_layout",
            "etcmodel.inspection.map_page.write_page",
            "etcmodel.serving.converted.ConvertedModel",
        ),
    ),
    "engine": (
        "Commands as functions",
        tuple(
            f"etcmodel.engine.{name}"
            for name in (
                *("preprocess", "lift", "train", "evaluate", "export"),
                *("predict", "serve", "inspect_record"),
            )
        ),
    ),
}


@event_priority(100)
def on_files(files, config):
    """Adds pages, before the plug-ins look for the files that they convert."""
    texts = {
        f"reference/{page}.md": _entries(title, modules)
        for page, (title, modules) in REFERENCE.items()
    }
    texts["reference/commands.md"] = _commands()
    for page, lines in texts.items():
        files.append(File.generated(config, page, content="\n".join(lines)))
    for page, name in _FILES.items():
        path = str(ROOT / name)
        files.append(File.generated(config, page, abs_src_path=path))
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in (".ipynb", ".py") and "_test" not in path.name:
            name = f"{path.parent.name}/{path.name}"
            # The plug-in for notebooks needs a file in a folder.
            places = str(ROOT), config.site_dir, config.use_directory_urls
            files.append(File(name, *places))
    return files


def on_page_markdown(markdown, page, config, files):
    """Changes links to files of the repository to links to pages."""
    del config, files
    # Where the repository's files are, seen from the page's source.
    root = "" if page.file.src_uri in _FILES else "../"
    for target, name in (*_FILES.items(), ("examples/", "examples/")):
        markdown = markdown.replace(f"]({root}{name}", f"]({target}")
    return markdown if root else markdown.replace("](docs/", "](")


def on_page_content(html, page, config, files):
    """Changes links that are no Markdown: of notebooks, and of HTML in pages.

    A page is a folder, so files beside its source are in the folder above.
    """
    del config, files
    if page.file.src_uri.endswith(".ipynb"):
        html = re.sub(r'href="\.\./docs/(\w+)\.md', r'href="../../\1/', html)
        return re.sub(r'href="(\w+\.py)"', r'href="../\1"', html)
    return html.replace('<img src="images/', '<img src="../images/')


def public_names(module: str) -> list[str]:
    """Returns the names in `__all__`, without importing the module; or []."""
    path = ROOT / module.replace(".", "/") / "__init__.py"
    if not path.exists():
        return []
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    return []


def _entries(title: str, modules: tuple[str, ...]) -> Iterator[str]:
    """Yields the lines of a page of the reference."""
    yield f"# {title}\n"
    for module in modules:
        names = public_names(module)
        for name in names:
            yield f"::: {module}.{name}\n"
        if not names:
            yield f"::: {module}\n"


def _commands() -> Iterator[str]:
    """Yields the lines of the page with all commands and their flags."""
    yield "# Commands and flags\n"
    for name in command_line.COMMANDS:
        yield from _flags(f"## {name}", name)
        if hasattr(command_line.load(name), "TASK_FLAGS"):
            for task in registry.tasks():
                yield from _flags(f"### {name} --task={task}", name, task)


def _flags(title: str, name: str, task: str | None = None) -> Iterator[str]:
    yield f"{title}\n"
    yield f"```text\n{command_line.describe(name, task)}```\n"
