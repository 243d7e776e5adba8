"""`serve`: answers requests over HTTP."""

from etcmodel.engine import serve
from etcmodel.engine.progress import Reporter

DESCRIPTION = """
Serves a model on this machine, for trying it and for small services. Requests
and answers are those of TensorFlow Serving's REST interface, so that clients
can move to TensorFlow Serving without a change:

  POST /v1/models/NAME:predict      {"instances": [{...}]} or {"inputs": {...}}
  GET  /v1/models/NAME              the versions and their states
  GET  /v1/models/NAME/metadata     the signatures
  GET  /                            a page that asks the model in a browser
  GET  /docs, /healthz, /metrics    for people, load balancers and Prometheus

With the versions of a model in directories 1, 2, ..., the newest is served;
--watch=5 looks for newer ones every 5 seconds. Needs etcmodel[serve].
"""

EXAMPLE = """
python -m etcmodel serve --saved_model=saved_model
# Open http://127.0.0.1:8501/, or:
curl localhost:8501/v1/models/hotpotqa:predict -d @request.json
"""

COMMON_FLAGS = (
    "saved_model",
    "model_dir",
    "host",
    "port",
    "watch",
    "max_batch_size",
)


Options = serve.Options


def run(options: Options) -> None:
    """Serves until the process is asked to end."""
    serve.serve(options, Reporter())
