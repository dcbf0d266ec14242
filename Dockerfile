# Tracesite with the packages of requirements-server.lock; docs/install.md says how to run it.
FROM python:3.13-slim-trixie AS build
# The packages are checked against the hashes of the lock file. They come first, so that a change of ours does not install them again.
COPY requirements-server.lock /src/
RUN python -m venv /opt/tracesite \
    && /opt/tracesite/bin/pip install --no-cache-dir --no-deps --require-hashes -r /src/requirements-server.lock
COPY . /src
RUN /opt/tracesite/bin/pip install --no-cache-dir --no-deps --no-index --no-build-isolation /src/sdk /src

FROM python:3.13-slim-trixie
COPY --from=build /opt/tracesite /opt/tracesite
RUN useradd --system --uid 10001 --home-dir /data --create-home tracesite
USER tracesite
ENV PATH=/opt/tracesite/bin:$PATH \
    TRACESITE_DATA_DIR=/data \
    PYTHONUNBUFFERED=1
VOLUME /data
EXPOSE 8000
HEALTHCHECK --start-period=60s --interval=15s --timeout=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
ENTRYPOINT ["tracesite"]
CMD ["serve", "--host", "0.0.0.0"]
