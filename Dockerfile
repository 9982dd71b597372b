# syntax=docker/dockerfile:1
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY apis apis
COPY queue queue
COPY admission admission
COPY controllers controllers
COPY cmd cmd
ARG TARGETOS TARGETARCH VERSION=dev
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /tranche ./cmd/tranche

FROM gcr.io/distroless/static:nonroot
COPY --from=build /tranche /tranche
USER 65532:65532
ENTRYPOINT ["/tranche"]
