# The server and the command line client. Several architectures, with BuildKit:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v0.1.0 --tag parley .
#
# `parley bench` is not in the image: it measures a machine from outside, with parley-bench beside bin/parley.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.work go.work.sum go.mod go.sum ./
COPY gen/go/go.mod gen/go/go.sum gen/go/
COPY sdk/go/go.mod sdk/go/go.sum sdk/go/
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=docker
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-s -w -X github.com/parleyhq/parley/internal/program.version=${VERSION}" -o /out/ ./server/cmd/parleyd ./clients/cli/parley

# Static programs, certificates, and a user that is not root; no shell.
FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=docker
LABEL org.opencontainers.image.title="parley" \
      org.opencontainers.image.description="Real-time messaging and work queues: the server parleyd and the command line parley" \
      org.opencontainers.image.source="https://github.com/parleyhq/parley" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /out/parleyd /out/parley /usr/local/bin/
# The API; health and metrics, which belong on a private network. A published port does not reach the defaults, which are on
# loopback inside the container.
ENV PARLEY_LISTEN=0.0.0.0:8080 PARLEY_OPS_LISTEN=0.0.0.0:8081
EXPOSE 8080 8081
# It asks the address of the configuration: of the variables, and of the file that PARLEY_CONFIG names.
# SIGTERM drains: give it more than limits.drain_timeout (10 s) before the kill, as in stop_grace_period.
HEALTHCHECK --interval=15s --timeout=6s --start-period=30s --retries=3 CMD ["/usr/local/bin/parleyd", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/parleyd"]
CMD ["serve"]
