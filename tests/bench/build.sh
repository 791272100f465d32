#!/bin/sh
# Build the programs that `python -m tests.bench peers` measures: llama.cpp and, from a checkout, ik_llama.cpp.
#
#   tests/bench/build.sh FOLDER [--ik CHECKOUT] [SET...]
#
# FOLDER receives llama.cpp-SET and ik_llama.cpp-SET, each with llama-bench and llama-batched-bench; SET is avx2 or
# avx512 (both if none is named). llama.cpp is the source that the sdist of llama-cpp-python brings, which is downloaded
# once. One build folder serves all sets: only what depends on the instructions is compiled again. What is built already
# stays; delete its folder to build it anew. ik_llama.cpp's attention is compiled for the 16-bit caches that are measured.
# Needs cmake and a C++ compiler. JOBS (1) is how many files are compiled at once.
set -eu

release=0.3.36
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
checkout=
if [ "${1:-}" = --ik ]; then
    checkout=$(cd "$2" && pwd)
    shift 2
fi
[ $# -gt 0 ] || set -- avx2 avx512

instructions() { # SET: cmake's options for it; ik_llama.cpp leaves out those that GGML_ARCH_FLAGS names
    case $1 in
        avx2) wide=OFF more=-mbmi2 ;;
        avx512) wide=ON more='-mbmi2;-mavx512cd;-mavx512dq;-mavx512vl' ;;
        *) echo "build.sh: $1 is neither avx2 nor avx512" >&2 && exit 2 ;;
    esac
    echo "-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_AVX512=$wide"
    echo "-DGGML_AVX512_VBMI=$wide -DGGML_AVX512_VNNI=$wide -DGGML_AVX512_BF16=$wide -DGGML_ARCH_FLAGS=$more"
}

build() { # NAME SOURCE SET
    binaries=$folder/$1-$3
    if [ -d "$binaries" ]; then
        echo "$binaries is there already"
        return
    fi
    options=$(instructions "$3")
    # shellcheck disable=SC2086
    cmake -S "$2" -B "$folder/build-$1" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DLLAMA_CURL=OFF \
        -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DGGML_IQK_FA_ALL_QUANTS=OFF $options
    cmake --build "$folder/build-$1" -j "${JOBS:-1}" --target llama-bench llama-batched-bench
    mkdir -p "$binaries.unfinished"
    cp "$folder/build-$1/bin/llama-bench" "$folder/build-$1/bin/llama-batched-bench" "$binaries.unfinished"
    mv "$binaries.unfinished" "$binaries"
    echo "$binaries is ready"
}

source=$folder/llama_cpp_python-$release/vendor/llama.cpp
if [ ! -d "$source" ]; then
    pip download --no-binary :all: --no-deps --dest "$folder" "llama-cpp-python==$release"
    tar -xzf "$folder/llama_cpp_python-$release.tar.gz" -C "$folder"
fi
for set in "$@"; do
    build llama.cpp "$source" "$set"
    if [ -n "$checkout" ]; then
        build ik_llama.cpp "$checkout" "$set"
    fi
done
