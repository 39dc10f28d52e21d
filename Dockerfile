# The server and the command-line client. No Docker engine has built this file yet: its steps were
# run by hand.
FROM golang:1.26.8-bookworm AS build
WORKDIR /src
COPY go.work go.work.sum go.mod go.sum ./
COPY gen/go/go.mod gen/go/go.sum gen/go/
COPY sdk/go/go.mod sdk/go/go.sum sdk/go/
RUN go mod download
COPY . .
ARG VERSION=docker
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X github.com/parleyhq/parley/internal/program.version=${VERSION}" -o /out/ ./server/cmd/parleyd ./clients/cli/parley

# Static programs, certificates, and a user other than root; no shell.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/parleyd /out/parley /usr/local/bin/
# 8080 is the API. 8081 is health and metrics and belongs on a private network.
EXPOSE 8080 8081
# SIGTERM drains. The grace period before SIGKILL must be longer than limits.drain_timeout (10 s),
# as in stop_grace_period.
HEALTHCHECK --interval=5s --timeout=6s --start-period=30s --retries=3 CMD ["/usr/local/bin/parleyd", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/parleyd"]
CMD ["serve"]
