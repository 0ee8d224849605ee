# Build settings shared by every folder, and the four functions that folders call.

option(BRIDLE_WERROR "Warnings are errors" OFF)
option(BRIDLE_FUZZ "Build the libFuzzer targets (clang)" OFF)
option(BRIDLE_COVERAGE "Build with gcov counters" OFF)
set(BRIDLE_SANITIZE "" CACHE STRING "Sanitizers, e.g. address,undefined")

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

find_program(BRIDLE_CCACHE ccache)
if(BRIDLE_CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${BRIDLE_CCACHE})
endif()

add_compile_options(-D_GNU_SOURCE -Wall -Wextra -Wshadow -Wvla -Wstrict-prototypes
                    -Wmissing-prototypes -Wformat=2 -Wpointer-arith -Wwrite-strings
                    -Wno-missing-field-initializers -fno-common -fstack-protector-strong)
if(BRIDLE_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fstack-clash-protection -fcf-protection -Wno-format-truncation)
endif()
if(BRIDLE_FUZZ) # so that the fuzzer sees the coverage of the libraries, too
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
if(BRIDLE_SANITIZE)
  add_compile_options(-fsanitize=${BRIDLE_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -DBR_SANITIZED=1)
  add_link_options(-fsanitize=${BRIDLE_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo")
  add_compile_options(-D_FORTIFY_SOURCE=2)
endif()
if(BRIDLE_COVERAGE)
  add_compile_options(--coverage)
  add_link_options(--coverage)
endif()
add_link_options(-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--as-needed)
include_directories(${CMAKE_SOURCE_DIR}/core ${CMAKE_BINARY_DIR}/generated)

find_package(PkgConfig REQUIRED)

# Imported targets, one per library from a Debian package: bridle::lua, bridle::jansson, ...
function(br_package target module)
  pkg_check_modules(${target} REQUIRED IMPORTED_TARGET ${module})
  add_library(bridle::${target} ALIAS PkgConfig::${target})
endfunction()
br_package(lua lua5.4)
br_package(jansson jansson)
br_package(yaml yaml-0.1)
br_package(sqlite sqlite3)
br_package(curl libcurl)
br_package(sodium libsodium)
br_package(treesitter tree-sitter)
br_package(edit libedit)
br_package(openssl openssl)
br_package(cmocka cmocka)

# br_library(name SOURCES a.c b.c LINKS bridle_base ...): static library bridle_<name>.
function(br_library name)
  cmake_parse_arguments(A "" "" "SOURCES;LINKS" ${ARGN})
  add_library(bridle_${name} STATIC ${A_SOURCES})
  target_link_libraries(bridle_${name} PUBLIC ${A_LINKS})
endfunction()

# br_program(name SOURCES ... LINKS ...): executable bin/<name>.
function(br_program name)
  cmake_parse_arguments(A "" "" "SOURCES;LINKS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_LINKS})
endfunction()

# br_test(unit SOURCES test_unit.c LINKS ... [LABELS ...] [TIMEOUT n]): a cmocka program and its ctest.
function(br_test unit)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
  add_executable(test_${unit} ${A_SOURCES})
  target_link_libraries(test_${unit} PRIVATE ${A_LINKS} bridle::cmocka)
  set_target_properties(test_${unit} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME c.${unit} COMMAND test_${unit} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 60)
  endif()
  set_tests_properties(c.${unit} PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "c;${A_LABELS}"
                       ENVIRONMENT "BRIDLE_BIN=${CMAKE_BINARY_DIR}/bin;BRIDLE_SOURCE=${CMAKE_SOURCE_DIR}")
endfunction()

# br_fuzz(unit SOURCES fuzz_unit.c LINKS ...): a libFuzzer target where BRIDLE_FUZZ is on, and in
# every build a replay of the corpus in fuzz_corpus/<unit>/ of the same folder (ctest fuzz.<unit>).
add_custom_target(fuzzers) # all of them
function(br_fuzz unit)
  cmake_parse_arguments(A "" "" "SOURCES;LINKS" ${ARGN})
  if(BRIDLE_FUZZ)
    add_executable(fuzz_${unit} ${A_SOURCES})
    target_link_libraries(fuzz_${unit} PRIVATE ${A_LINKS})
    target_compile_options(fuzz_${unit} PRIVATE -fsanitize=fuzzer)
    target_link_options(fuzz_${unit} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(fuzz_${unit} ${A_SOURCES} ${CMAKE_SOURCE_DIR}/core/base/fuzz_replay.c)
    target_link_libraries(fuzz_${unit} PRIVATE ${A_LINKS})
  endif()
  add_dependencies(fuzzers fuzz_${unit})
  set_target_properties(fuzz_${unit} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  set(args ${CMAKE_CURRENT_SOURCE_DIR}/fuzz_corpus/${unit})
  if(BRIDLE_FUZZ)
    set(args -runs=0 ${args})
  endif()
  add_test(NAME fuzz.${unit} COMMAND fuzz_${unit} ${args})
  set_tests_properties(fuzz.${unit} PROPERTIES TIMEOUT 60 LABELS "fuzz")
endfunction()

# br_foreign(target NAME FILES ...): static library of an npm package's C files (vendor/npm), with none
# of our warnings and sanitizers: its bytes are pinned, and nobody here repairs them.
function(br_foreign target name)
  set(dir ${CMAKE_BINARY_DIR}/npm/${name})
  execute_process(COMMAND ${CMAKE_SOURCE_DIR}/vendor/npm/unpack ${name} ${dir} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "'${name}' could not be unpacked; see above")
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
               ${CMAKE_SOURCE_DIR}/vendor/npm/packages.txt ${CMAKE_SOURCE_DIR}/vendor/npm/unpack)
  list(TRANSFORM ARGN PREPEND ${dir}/src/)
  add_library(${target} STATIC ${ARGN})
  set_target_properties(${target} PROPERTIES COMPILE_OPTIONS "-w;-O2;-g0;-fstack-protector-strong;-DTREE_SITTER_REUSE_ALLOCATOR")
  target_include_directories(${target} PRIVATE ${dir}/src)
endfunction()

# br_embed(target symbol file): links the bytes of a text file into the target, NUL-terminated, as
# `const char <symbol>[]` and `const unsigned <symbol>_len`.
set(BRIDLE_EMBED_DIR ${CMAKE_CURRENT_LIST_DIR})
function(br_embed target symbol file)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/embed_${symbol}.c)
  get_filename_component(path ${file} ABSOLUTE)
  file(WRITE ${out}.in "__asm__(\".section .rodata\\n.global ${symbol}\\n.type ${symbol}, @object\\n${symbol}:\\n.incbin \\\"${path}\\\"\\n.Lend_${symbol}:\\n.byte 0\\n.size ${symbol}, . - ${symbol}\\n.balign 4\\n.global ${symbol}_len\\n.type ${symbol}_len, @object\\n.size ${symbol}_len, 4\\n${symbol}_len:\\n.int .Lend_${symbol} - ${symbol}\\n.previous\\n\");\n")
  configure_file(${out}.in ${out} COPYONLY)
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS ${path})
  target_sources(${target} PRIVATE ${out})
endfunction()
