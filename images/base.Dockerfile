# What every role's image shares. Two targets: `build` installs packages and is thrown away, `run` is what roles run on.
# BASE_IMAGE has glibc, apt and Python 3.11 or newer as `python3`, with venv; another one is given with --build-arg.
ARG BASE_IMAGE=python:3.11.16-slim-bookworm@sha256:2e32f7d302adc1c37428355c1e646897c0c53f4fd60b6a551245fb90ee129f91

FROM ${BASE_IMAGE} AS build
COPY --chmod=0755 images/fetch.sh /usr/local/bin/fetch
COPY requirements/uv.txt /tmp/uv.txt
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip --mount=type=secret,id=environ \
    python3 -m venv /opt/uv \
    && fetch /opt/uv/bin/python -m pip install --quiet --no-cache-dir --require-hashes --no-deps -r /tmp/uv.txt \
    && python3 -m venv --without-pip /opt/diphase

FROM ${BASE_IMAGE} AS made
COPY --chmod=0755 images/fetch.sh /usr/local/bin/fetch
RUN --mount=type=secret,id=ca --mount=type=secret,id=environ \
    if ! command -v tini > /dev/null; then \
        fetch apt-get update && fetch apt-get install --yes --no-install-recommends tini; \
    fi
# A fixed user without a name's privileges, a shell or a home; what it may write is mounted.
RUN groupadd --gid 10001 diphase \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin diphase \
    && install -d /model /etc/diphase && install -d -o 10001 -g 10001 /cache
COPY images/health.py /opt/health.py
# Nothing here installs packages any more. The root file system is read-only, so bytecode is written now.
RUN library="$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')" \
    && rm -rf "$library"/ensurepip "$library"/idlelib "$library"/lib2to3 "$library"/site-packages/* \
        /usr/local/bin/pip* /usr/local/bin/idle* /usr/local/bin/fetch /usr/share/python-wheels \
        /var/lib/apt/lists/* /var/cache/* /var/log/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/* /root/.cache \
    && find "$library" -name test -type d -prune -exec rm -rf {} + \
    && python3 -m compileall -q -j 0 "$library"

# One layer, in which what was removed is not there at all.
FROM scratch AS run
COPY --from=made / /
ENV PATH=/opt/diphase/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8 \
    HOME=/tmp \
    XDG_CACHE_HOME=/cache \
    PYTHONPATH=/srv/diphase \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOST=0.0.0.0
WORKDIR /srv/diphase
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=6 CMD ["python3", "-I", "-S", "/opt/health.py"]
USER 10001:10001
