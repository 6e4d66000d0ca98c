# Prometheus from the distribution's package, called like the image that deploy/compose.yaml names.
ARG BASE
FROM ${BASE}
RUN apt-get -q update && \
    apt-get -q -y install --no-install-recommends prometheus && \
    install -d -o 65534 -g 65534 /prometheus
USER 65534:65534
ENTRYPOINT ["/usr/bin/prometheus"]
