# Workers of Apache Beam that run `preprocess` on a cluster; see
# docs/distributed.md. Beam must be the version that starts the pipeline:
#
#   docker build -t IMAGE --build-arg BEAM_VERSION=2.77.0 .
ARG BEAM_VERSION
FROM apache/beam_python3.11_sdk:${BEAM_VERSION}
ARG BEAM_VERSION
COPY . /etcmodel
RUN pip install --no-cache-dir "/etcmodel[beam]" "apache-beam==${BEAM_VERSION}"
