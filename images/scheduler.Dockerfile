ARG BUILD
ARG BASE

FROM ${BUILD} AS packages
COPY requirements/scheduler.txt /tmp/requirements.txt
RUN --mount=type=secret,id=ca --mount=type=secret,id=environ --mount=type=cache,target=/root/.cache/uv,sharing=locked \
    fetch /opt/uv/bin/uv pip sync --quiet --python /opt/diphase --require-hashes --link-mode copy --compile-bytecode \
        /tmp/requirements.txt

FROM ${BUILD} AS code
WORKDIR /srv/diphase/services
COPY services/__init__.py ./
COPY services/common common
COPY services/kv kv
COPY services/scheduler scheduler
RUN python3 -m compileall -q .

FROM ${BASE}
COPY --from=packages /opt/diphase /opt/diphase
COPY --from=code /srv/diphase /srv/diphase
ARG VERSION
ARG COMMIT
ARG CREATED
LABEL org.opencontainers.image.title="Diphase scheduler: who serves a request" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${COMMIT}" \
    org.opencontainers.image.created="${CREATED}"
USER 10001:10001
ENTRYPOINT ["tini", "--", "python", "-m", "services.scheduler"]
