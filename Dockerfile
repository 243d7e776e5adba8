# Workers of Apache Beam that run `preprocess` on a cluster; see
# docs/distributed.md. Beam and Python must be the versions that start the
# pipeline:
#
#   docker build -t IMAGE --build-arg BEAM_VERSION=2.77.0 .
ARG BEAM_VERSION
ARG PYTHON_VERSION=3.11
FROM apache/beam_python${PYTHON_VERSION}_sdk:${BEAM_VERSION}
ARG BEAM_VERSION
COPY . /etcmodel
RUN pip install --no-cache-dir "/etcmodel[beam]" "apache-beam==${BEAM_VERSION}"
