# A prefill or a decode worker with the torch engine, which computes on the CPU.
ARG BUILD
ARG BASE

FROM ${BUILD} AS compiler
RUN --mount=type=secret,id=ca --mount=type=secret,id=environ \
    fetch apt-get update && fetch apt-get install --quiet --yes --no-install-recommends gcc libc6-dev

FROM compiler AS packages
# Another lock, such as one of a torch built for the CPU alone, is given with --build-arg.
ARG REQUIREMENTS=requirements/worker.txt
COPY ${REQUIREMENTS} /tmp/requirements.txt
RUN --mount=type=secret,id=ca --mount=type=secret,id=environ --mount=type=cache,target=/root/.cache/uv,sharing=locked \
    fetch /opt/uv/bin/uv pip sync --quiet --python /opt/diphase --require-hashes --link-mode copy --compile-bytecode \
        /tmp/requirements.txt
COPY images/absent.py /tmp/absent.py
# Without tests, what only compiling against torch needs, what only a GPU does, and symbols that only a debugger reads.
RUN packages="$(/opt/diphase/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && find "$packages" -name tests -type d -prune -exec rm -rf {} + \
    && rm -rf "$packages"/torch/include "$packages"/torch/share "$packages"/torch/bin/protoc* \
        "$packages"/torch/lib/libtorch_cuda_linalg.so "$packages"/nvidia/*/include "$packages"/nvidia/*/lib/*.a \
    && strip --strip-unneeded "$packages"/torch/lib/*.so \
    && python3 /tmp/absent.py "$packages"/torch/lib
RUN /opt/diphase/bin/python -B -W error -c \
    'import torch; assert not torch.cuda.is_available(); assert torch.ones(8, 8).mm(torch.ones(8, 8)).sum() == 512'

# There is no compiler in the image: what a worker would compile for its CPU is made for the CPUs that may come.
FROM compiler AS native
COPY services/worker/engine/torch/native /tmp/native
RUN python3 /tmp/native/build.py /tmp/built

FROM ${BUILD} AS code
WORKDIR /srv/diphase/services
COPY services/__init__.py ./
COPY services/common common
COPY services/kv kv
COPY services/worker worker
COPY --from=native /tmp/built worker/engine/torch/native/built
RUN python3 -m compileall -q .

FROM ${BASE}
COPY --from=packages /opt/diphase /opt/diphase
COPY --from=code /srv/diphase /srv/diphase
ARG VERSION
ARG COMMIT
ARG CREATED
LABEL org.opencontainers.image.title="Diphase worker: prefill or decode, torch engine" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${COMMIT}" \
    org.opencontainers.image.created="${CREATED}"
USER 10001:10001
ENTRYPOINT ["tini", "--", "python", "-m", "services.worker"]
